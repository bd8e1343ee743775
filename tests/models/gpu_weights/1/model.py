import json

import host_gpu
import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_stub.memory import gpu

MIB = 128
CODE = 1


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        gpu.use(host_gpu.HostGpu(config["parameters"]["GPU"]["string_value"]))
        self.wake_up()

    def adopt(self, old):
        self.weights = old.weights

    def sleep(self):
        self.weights = None
        host_gpu.give_back()

    def wake_up(self):
        self.weights = host_gpu.OnGpu(np.full(MIB << 20, 3, np.uint8))

    def execute(self, requests):
        if "lose" in requests[0].parameters():
            host_gpu.lose()
        tensor = pb_utils.Tensor.from_dlpack("DATA", self.weights)
        array = host_gpu.contents(tensor)
        [last] = host_gpu.on_cpu(array[-1:])
        seen = np.array([last, host_gpu.address(array), CODE])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", seen)]) for _ in requests]
