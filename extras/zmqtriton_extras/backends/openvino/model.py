"""Runs models with OpenVINO: of its own format, of ONNX and others that it reads."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution, signature
from zmqtriton_extras.backends.signature import Io

try:
    import openvino
except ImportError as error:
    raise configuration.require("openvino", "openvino", "openvino", error) from error

_DATA_TYPES = {
    "boolean": "TYPE_BOOL",
    "u8": "TYPE_UINT8",
    "u16": "TYPE_UINT16",
    "u32": "TYPE_UINT32",
    "u64": "TYPE_UINT64",
    "i8": "TYPE_INT8",
    "i16": "TYPE_INT16",
    "i32": "TYPE_INT32",
    "i64": "TYPE_INT64",
    "f16": "TYPE_FP16",
    "f32": "TYPE_FP32",
    "f64": "TYPE_FP64",
    "string": "TYPE_STRING",
}
#: Parameters that are properties of the compiled model of the same name.
_PROPERTIES = ("NUM_STREAMS", "PERFORMANCE_HINT", "INFERENCE_PRECISION_HINT", "CACHE_DIR")


def read_model(config: dict[str, Any]) -> Any:
    """Return the model of the version. Raises TritonModelException with OpenVINO's reason."""
    path = configuration.find_file(config, "model.xml")
    try:
        return openvino.Core().read_model(path)
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"openvino: cannot read {path}; save it again: {error}"
        ) from error


def compile_model(config: dict[str, Any], model: Any, kind: str) -> Any:
    """Return the model, ready to be called. Raises TritonModelException."""
    properties: Dict[str, Any] = {
        name: configuration.parameter(config, name)
        for name in _PROPERTIES
        if configuration.parameter(config, name)
    }
    properties.setdefault("PERFORMANCE_HINT", "LATENCY")
    threads = configuration.threads(config, "INFERENCE_NUM_THREADS")
    if threads and kind != "GPU":
        properties["INFERENCE_NUM_THREADS"] = threads
    device = configuration.parameter(config, "TARGET_DEVICE", "GPU" if kind == "GPU" else "CPU")
    core = openvino.Core()
    extension = configuration.parameter(config, "CPU_EXTENSION_PATH")
    try:
        if extension:
            core.add_extension(extension)
        return core.compile_model(model, device, properties)
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"openvino: cannot compile, check TARGET_DEVICE and the file: {error}"
        ) from error


def free_batch(config: dict[str, Any], model: Any) -> None:
    """Make the first dimension variable if the configuration has batches and the file does not."""
    is_fixed = configuration.flag(config, "SKIP_OV_DYNAMIC_BATCHSIZE", default=False)
    if is_fixed or not signature.has_batches(config):
        return
    shapes = {}
    for one in model.inputs:
        shape = one.partial_shape
        if shape.rank.is_static and len(shape) and shape[0].is_static:
            shape[0] = -1
            shapes[one.any_name] = shape
    try:
        if shapes:
            model.reshape(shapes)
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"model '{config['name']}' does not support batching while max_batch_size is "
            f"{config['max_batch_size']}: {error}"
        ) from error


def inputs_of(model: Any) -> List[Io]:
    return [_io(one, "") for one in model.inputs]


def outputs_of(model: Any) -> List[Io]:
    """Return the outputs; nameless ones are called OUTPUT__0 and so on."""
    return [_io(one, f"OUTPUT__{place}") for place, one in enumerate(model.outputs)]


def _io(port: Any, default: str) -> Io:
    name = next(iter(sorted(port.names)), default) if port.names else default
    kind = port.element_type.get_type_name()
    if kind not in _DATA_TYPES:
        raise pb_utils.TritonModelException(
            f"unsupported datatype {kind} for I/O '{name}'; convert it to one of "
            f"{', '.join(_DATA_TYPES)}"
        )
    shape = port.partial_shape
    dims = None
    if shape.rank.is_static:
        dims = [-1 if dim.is_dynamic else dim.get_length() for dim in shape]
    return Io(name, _DATA_TYPES[kind], dims)


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            model = read_model(document)
            free_batch(document, model)
            signature.complete(config, inputs_of(model), outputs_of(model))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        model = read_model(config)
        free_batch(config, model)
        inputs, outputs = inputs_of(model), outputs_of(model)
        signature.check(config, inputs, outputs)
        self._model = compile_model(config, model, args["model_instance_kind"])
        self._strings = {io.name for io in inputs if io.data_type == "TYPE_STRING"}
        #: the place of each output among the model's
        self._places = {io.name: place for place, io in enumerate(outputs)}
        self._signature = signature.read(config)

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._run, self._signature)

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        for name in self._strings.intersection(inputs):
            inputs[name] = execution.to_strings(inputs[name], name).astype(np.str_)
        # inputs are read where they are; outputs are copied, since the next call writes over them
        arrays = self._model(inputs, share_inputs=True, share_outputs=False)
        return {name: _array(arrays[self._places[name]]) for name in outputs}


def _array(array: Any) -> Any:
    return array.astype(np.object_) if array.dtype.kind == "U" else array
