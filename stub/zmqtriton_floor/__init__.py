"""The common ground of all processes: the wire, lifelines, tensors, checks, errors, logs.

Runs inside the server's interpreter and inside each model's own (CPython 3.8 or newer), so it
imports nothing but the standard library, pyzmq, msgpack and numpy.
"""

__version__ = "0.1.0"
