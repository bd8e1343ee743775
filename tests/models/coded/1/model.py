import json
import textwrap
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


def say(*values):
    """A response whose output SAID holds what the values look like."""
    texts = np.array([repr(value).encode() for value in values], dtype=np.object_)
    return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", texts)])


def tensors(*values):
    """Y for numbers, SAID for texts."""
    return [
        pb_utils.Tensor("Y" if value.dtype == np.float32 else "SAID", value) for value in values
    ]


class TritonPythonModel:
    """Does what the lines of CODE say, in place of a body of execute."""

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        code = pb_utils.get_input_tensor_by_name(requests[0], "CODE").as_numpy()
        text = code.flat[0].decode()
        scope = {
            "json": json,
            "np": np,
            "pb_utils": pb_utils,
            "request": requests[0],
            "requests": requests,
            "say": say,
            "self": self,
            "tensors": tensors,
            "threading": threading,
        }
        body = "def run():\n" + textwrap.indent(text, "    ")
        exec(compile(body, "CODE", "exec"), scope)
        return scope["run"]()
