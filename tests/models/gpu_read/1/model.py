import json

import host_gpu
import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_stub.memory import gpu


class TritonPythonModel:
    """Z is Y plus one; ON_GPU says where Y was. What it was given it overwrites, or keeps."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        gpu.use(host_gpu.HostGpu(config["parameters"]["GPU"]["string_value"]))
        self.kept = []

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "Y")
        is_on_gpu = not tensor.is_cpu()
        array = host_gpu.contents(tensor) if is_on_gpu else tensor.as_numpy()
        outputs = [
            pb_utils.Tensor("Z", (host_gpu.on_cpu(array) if is_on_gpu else array) + 1),
            pb_utils.Tensor("ON_GPU", np.array([is_on_gpu], np.int32)),
            pb_utils.Tensor("OPENS", np.array([getattr(gpu.driver(), "opens", 0)], np.int32)),
            pb_utils.Tensor("KEPT", np.array([float(a.sum()) for a in self.kept], np.float32)),
        ]
        if json.loads(request.parameters()).get("keep"):
            self.kept = [array]
        else:
            array[:] = -1
        return pb_utils.InferenceResponse(outputs)
