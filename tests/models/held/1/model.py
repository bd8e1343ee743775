import json
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is INPUT0 + 1, calculated in place, and so is OUTPUT1.

    With the parameter `path` it writes PATH.begun and waits for PATH.go before it reads INPUT0, and
    writes its sum to PATH.sum.
    """

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        path = json.loads(request.parameters()).get("path")
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        if path:
            with open(path + ".begun", "w"):
                pass
            while not os.path.exists(path + ".go"):
                time.sleep(0.01)
        array = tensor.as_numpy()
        if path:
            with open(path + ".new", "w") as file:
                file.write(str(float(array.sum())))
            os.rename(path + ".new", path + ".sum")
        array += 1
        names = request.requested_output_names()
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name in names])
