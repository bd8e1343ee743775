"""Runs plans with TensorRT on a GPU.

Written after TensorRT's documentation (version 10) and never run: there was no GPU to run it on.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution, signature
from zmqtriton_extras.backends.signature import Io

try:
    import cupy
    import tensorrt
except ImportError as error:
    missing = "cupy" if error.name == "cupy" else "tensorrt"
    raise configuration.require("tensorrt", missing, "tensorrt cupy-cuda12x", error) from error

_DATA_TYPES = {
    "BOOL": ("TYPE_BOOL", np.bool_),
    "UINT8": ("TYPE_UINT8", np.uint8),
    "INT8": ("TYPE_INT8", np.int8),
    "INT32": ("TYPE_INT32", np.int32),
    "INT64": ("TYPE_INT64", np.int64),
    "HALF": ("TYPE_FP16", np.float16),
    "FLOAT": ("TYPE_FP32", np.float32),
}


class Plan:
    """An engine with one execution context, and the optimization profile of an instance."""

    def __init__(self, path: str, device: int, profile: int) -> None:
        self._device = cupy.cuda.Device(device)
        with self._device:
            logger = tensorrt.Logger(tensorrt.Logger.WARNING)
            tensorrt.init_libnvinfer_plugins(logger, "")
            with open(path, "rb") as file:
                # None if it is of another version or another GPU; the reason is in the log
                engine = tensorrt.Runtime(logger).deserialize_cuda_engine(file.read())
            if engine is None:
                raise pb_utils.TritonModelException(
                    f"tensorrt: cannot load {os.path.basename(path)}: it was built by another "
                    f"version than {tensorrt.__version__}, or for another GPU: build it here"
                )
            self._engine = engine
            self._context = engine.create_execution_context()
            self._stream = cupy.cuda.Stream(non_blocking=True)
            if not self._context.set_optimization_profile_async(profile, self._stream.ptr):
                raise pb_utils.TritonModelException(
                    f"tensorrt: there is no optimization profile {profile}, only "
                    f"{engine.num_optimization_profiles}"
                )
        self._names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]

    def inputs(self) -> List[Io]:
        return self._described(tensorrt.TensorIOMode.INPUT)

    def outputs(self) -> List[Io]:
        return self._described(tensorrt.TensorIOMode.OUTPUT)

    def _described(self, mode: Any) -> List[Io]:
        engine = self._engine
        return [
            Io(name, self._type(name)[0], [int(dim) for dim in engine.get_tensor_shape(name)])
            for name in self._names
            if engine.get_tensor_mode(name) == mode
        ]

    def _type(self, name: str) -> Any:
        kind = self._engine.get_tensor_dtype(name).name
        if kind not in _DATA_TYPES:
            raise pb_utils.TritonModelException(f"unsupported datatype {kind} for I/O '{name}'")
        return _DATA_TYPES[kind]

    def run(self, inputs: Dict[str, Any], outputs: List[str]) -> Dict[str, Any]:
        """Return the outputs as arrays of numpy. Raises ValueError."""
        context = self._context
        with self._device, self._stream:
            held = {}
            for name, array in inputs.items():
                held[name] = cupy.asarray(np.ascontiguousarray(array))
                if not context.set_input_shape(name, array.shape):
                    raise ValueError(
                        f"the shape {list(array.shape)} of input '{name}' is outside of the "
                        "optimization profile: send another shape, or build the plan for it"
                    )
                context.set_tensor_address(name, held[name].data.ptr)
            for io in self.outputs():
                shape = tuple(context.get_tensor_shape(io.name))
                held[io.name] = cupy.empty(shape, dtype=self._type(io.name)[1])
                context.set_tensor_address(io.name, held[io.name].data.ptr)
            if not context.execute_async_v3(self._stream.ptr):
                raise ValueError("TensorRT failed to execute; the reason is in the log")
            arrays = {name: cupy.asnumpy(held[name], stream=self._stream) for name in outputs}
            self._stream.synchronize()
        return arrays


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            plan = Plan(configuration.find_file(document, "model.plan"), 0, 0)
            signature.complete(config, plan.inputs(), plan.outputs())
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if args["model_instance_kind"] != "GPU":
            raise pb_utils.TritonModelException(
                f"model '{config['name']}' of backend 'tensorrt' needs instances of KIND_GPU"
            )
        self._plan = Plan(
            configuration.find_file(config, "model.plan"),
            int(args["model_instance_device_id"]),
            _profile(config),
        )
        signature.check(config, self._plan.inputs(), self._plan.outputs())
        self._signature = signature.read(config)

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._plan.run, self._signature)


def _profile(config: dict[str, Any]) -> int:
    """Return the optimization profile: the first that the first group names, or else 0."""
    groups = config.get("instance_group") or [{}]
    named = groups[0].get("profile") or ["0"]
    return int(named[0])
