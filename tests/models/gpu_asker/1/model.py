import json

import host_gpu
import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_stub.memory import gpu

PLACES = {"GPU": pb_utils.TRITONSERVER_MEMORY_GPU, "CPU": pb_utils.TRITONSERVER_MEMORY_CPU}


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        gpu.use(host_gpu.HostGpu(config["parameters"]["GPU"]["string_value"]))

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        options = json.loads(request.parameters())
        tensor = pb_utils.get_input_tensor_by_name(request, "X")
        made = self._ask("gpu_made", tensor, "Y", options.get("prefer"))
        read = self._ask(options["reader"], made, "Z", options.get("prefer_read"), options)
        report = {
            "made_on_gpu": not made.is_cpu(),
            "device": made.__dlpack_device__(),
            # The reader has overwritten its own.
            "made": _sum(made),
            "read_on_gpu": not read.is_cpu(),
            "sum": _sum(read),
            **self.seen,
        }
        text = np.array([json.dumps(report)], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("REPORT", text)])

    def _ask(self, model, tensor, output, prefer, parameters=None):
        inputs = [_renamed(tensor, "X" if output == "Y" else "Y")]
        preferred = pb_utils.PreferredMemory(PLACES[prefer], 0) if prefer else None
        outputs = [output] if output == "Y" else [output, "ON_GPU", "OPENS", "KEPT"]
        response = pb_utils.InferenceRequest(
            model_name=model,
            requested_output_names=outputs,
            inputs=inputs,
            preferred_memory=preferred,
            parameters=parameters or {},
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        tensors = {t.name(): t for t in response.output_tensors()}
        if output == "Z":
            self.seen = {n.lower(): _numbers(tensors[n]) for n in ("ON_GPU", "OPENS", "KEPT")}
        return tensors[output]


def _renamed(tensor, name):
    if tensor.is_cpu():
        return pb_utils.Tensor(name, tensor.as_numpy())
    return pb_utils.Tensor.from_dlpack(name, tensor)


def _numbers(tensor):
    if tensor.is_cpu():
        return tensor.as_numpy().tolist()
    return host_gpu.on_cpu(host_gpu.contents(tensor)).tolist()


def _sum(tensor):
    return float(sum(_numbers(tensor)))
