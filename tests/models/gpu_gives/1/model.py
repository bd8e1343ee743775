import json

import host_gpu
import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_stub.memory import gpu


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        gpu.use(host_gpu.HostGpu(config["parameters"]["GPU"]["string_value"]))
        self.arrays = {}

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        size = int(pb_utils.get_input_tensor_by_name(request, "SIZE").as_numpy()[0])
        if size not in self.arrays:
            self.arrays = {size: host_gpu.OnGpu(np.full(size, 7, np.uint8))}
        tensor = pb_utils.Tensor.from_dlpack("DATA", self.arrays[size])
        return pb_utils.InferenceResponse([tensor])
