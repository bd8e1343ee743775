"""Runs models of PyTorch, as Triton's backend of this name does."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from typing import Any

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution, signature
from zmqtriton_extras.backends.signature import Io

configuration.limit_spinning()
try:
    import torch

    from zmqtriton_extras.backends.pytorch import modules
except ImportError as error:
    raise configuration.require("pytorch", "torch", "torch", error) from error

#: Parameters that set how TorchScript is executed, each with the function that does.
_SCRIPT_SWITCHES = {
    "ENABLE_JIT_EXECUTOR": "_jit_set_profiling_executor",
    "ENABLE_JIT_PROFILING": "_jit_set_profiling_mode",
    "ENABLE_TENSOR_FUSER": "_jit_set_texpr_fuser_enabled",
}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        document = config.as_dict()
        if signature.is_complete(document):
            return config
        module = modules.load(document, "CPU", "0")
        if module.inputs is None or module.outputs is None:
            raise pb_utils.TritonModelException(
                f"model '{document['name']}' must specify 'input' and 'output' in config.pbtxt: "
                "only files of torch.export.save() tell them"
            )
        signature.complete(config, module.inputs, module.outputs)
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        _set_threads(config)
        for name, function in _SCRIPT_SWITCHES.items():
            if configuration.parameter(config, name):
                getattr(torch._C, function)(configuration.flag(config, name, default=True))
        self._module = modules.load(
            config, args["model_instance_kind"], args["model_instance_device_id"]
        )
        self._signature = signature.read(config)
        self._inputs = modules.order(self._signature.inputs, self._module.arguments)
        if self._module.inputs is not None:
            own = [Io(name, *io[1:]) for name, io in zip(self._inputs, self._module.inputs)]
            outputs = [Io(name, "", None) for name in self._signature.outputs]
            # inputs and outputs may be called otherwise than an exported program's
            signature.check(config, own, outputs)
        self._outputs = modules.order(self._signature.outputs, [])
        self._is_in_inference_mode = configuration.flag(
            config, "INFERENCE_MODE", default=self._module.prefers_inference_mode
        )
        self._is_optimized = not configuration.flag(
            config, "DISABLE_OPTIMIZED_EXECUTION", default=False
        )
        is_cleaned = configuration.flag(config, "ENABLE_CACHE_CLEANING", default=False)
        self._is_cleaned = is_cleaned and self._module.device.type == "cuda"
        read = partial(modules.to_tensor, device=self._module.device)
        self._arrays = execution.Arrays(read, modules.join)

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = execution.execute(requests, self._run, self._signature, self._arrays)
        if self._is_cleaned:
            torch.cuda.empty_cache()
        return responses

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        arguments = modules.arguments_for(inputs, self._inputs, self._module.arguments)
        with ExitStack() as modes:
            no_gradients = torch.inference_mode if self._is_in_inference_mode else torch.no_grad
            modes.enter_context(no_gradients())
            if not self._is_optimized:
                modes.enter_context(torch.jit.optimized_execution(False))
            arrays = modules.outputs_of(self._module.call(*arguments), self._outputs)
        return {name: arrays[name] for name in outputs}


def _set_threads(config: dict[str, Any]) -> None:
    own = configuration.number(config, "NUM_THREADS", 0)
    threads = own or configuration.threads(config, "INTRA_OP_THREAD_COUNT")
    if threads:
        torch.set_num_threads(threads)
    between = configuration.number(config, "NUM_INTEROP_THREADS", 0)
    between = between or configuration.number(config, "INTER_OP_THREAD_COUNT", 0)
    if between:
        torch.set_num_interop_threads(between)
