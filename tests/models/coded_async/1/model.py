import asyncio
import textwrap

import numpy as np
import triton_python_backend_utils as pb_utils


def say(*values):
    """A response whose output SAID holds what the values look like."""
    texts = np.array([repr(value).encode() for value in values], dtype=np.object_)
    return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", texts)])


class TritonPythonModel:
    """Does what the lines of CODE say, in place of a body of a coroutine."""

    async def execute(self, requests):
        code = pb_utils.get_input_tensor_by_name(requests[0], "CODE").as_numpy()
        text = code.flat[0].decode()
        scope = {
            "asyncio": asyncio,
            "np": np,
            "pb_utils": pb_utils,
            "request": requests[0],
            "say": say,
        }
        body = "async def run():\n" + textwrap.indent(text, "    ")
        exec(compile(body, "CODE", "exec"), scope)
        return await scope["run"]()
