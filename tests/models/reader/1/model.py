import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Writes PATH.begun, waits for PATH.go, and writes the sum of its input to PATH.sum."""

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        path = json.loads(request.parameters())["path"]
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        with open(path + ".begun", "w"):
            pass
        while not os.path.exists(path + ".go"):
            time.sleep(0.01)
        total = tensor.as_numpy().sum(keepdims=True)
        with open(path + ".new", "w") as file:
            file.write(str(float(total[0])))
        os.rename(path + ".new", path + ".sum")
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", total.astype(np.float32))])
