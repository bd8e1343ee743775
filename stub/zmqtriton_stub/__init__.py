"""One model instance: the process that runs a model's model.py with the model's own interpreter.

Imports nothing but the standard library, pyzmq, msgpack, numpy and the floor. No server process
imports it; tests of models may, to get the `triton_python_backend_utils` of models.
"""

import os

#: Directory that makes `import triton_python_backend_utils` work if it is on sys.path.
MODEL_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_path")
