import json

import host_gpu
import triton_python_backend_utils as pb_utils

from zmqtriton_stub.memory import gpu


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        gpu.use(host_gpu.HostGpu(config["parameters"]["GPU"]["string_value"]))

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + 1
        tensor = pb_utils.Tensor.from_dlpack("Y", host_gpu.OnGpu(array))
        return pb_utils.InferenceResponse([tensor])
