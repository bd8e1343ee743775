import importlib.util
import json
import os
import sys

import beside
import numpy as np
import triton_python_backend_utils as pb_utils

NAMES = ("VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


class TritonPythonModel:
    """OUT is IN and which Python and numpy this is; FACTS is JSON of where it runs."""

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].decode()
        if text == "die":
            sys.stdout.write("the last but one\n")
            sys.stderr.write("the last words")
            sys.stderr.flush()
            os._exit(3)
        major, minor = sys.version_info[:2]
        stamp = f"{major}.{minor}/{np.__version__.partition('.')[0]}"
        outputs = {"OUT": f"{text} {stamp}".strip(), "FACTS": json.dumps(self._facts())}
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, np.array([value], dtype=np.object_))
                for name, value in outputs.items()
            ]
        )

    def _facts(self):
        return {
            "prefix": sys.prefix,
            "path": sys.path,
            "variables": {name: os.environ.get(name) for name in NAMES},
            "numpy": np.__file__,
            "zmq": importlib.util.find_spec("zmq").origin,
            "beside": beside.HERE,
            "customized": getattr(sys, "customized", None),
            "leaked": [
                name
                for name in ("zmqtriton", "zmqtriton_frontends", "falcon", "gunicorn")
                if importlib.util.find_spec(name) is not None
            ],
            "greeting": importlib.util.find_spec("greeting") is not None,
        }
