"""Models of OpenVINO, read and compiled as a configuration of Triton's backend says."""

from __future__ import annotations

from typing import Any, Dict, List

import openvino
import triton_python_backend_utils as pb_utils

from zmqtriton_addons.backends import configuration, signature
from zmqtriton_addons.backends.signature import Io

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


def read(config: dict[str, Any]) -> Any:
    """Return the model of the version. Raises TritonModelException with OpenVINO's reason."""
    path = configuration.find_file(config, "model.xml")
    try:
        return openvino.Core().read_model(path)
    except Exception as error:
        raise pb_utils.TritonModelException(f"openvino: cannot read {path}: {error}") from error


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
        raise pb_utils.TritonModelException(f"openvino: cannot compile: {error}") from error


def free_batch(config: dict[str, Any], model: Any) -> None:
    """Let the first dimension be of any size if the configuration has batches and the file one."""
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


def inputs(model: Any) -> List[Io]:
    return [_io(one, "") for one in model.inputs]


def outputs(model: Any) -> List[Io]:
    """Return the outputs; those without a name are called OUTPUT__0 and so on."""
    return [_io(one, f"OUTPUT__{place}") for place, one in enumerate(model.outputs)]


def _io(port: Any, default: str) -> Io:
    name = next(iter(sorted(port.names)), default) if port.names else default
    kind = port.element_type.get_type_name()
    if kind not in _DATA_TYPES:
        raise pb_utils.TritonModelException(f"unsupported datatype {kind} for I/O '{name}'")
    shape = port.partial_shape
    dims = None
    if shape.rank.is_static:
        dims = [-1 if dim.is_dynamic else dim.get_length() for dim in shape]
    return Io(name, _DATA_TYPES[kind], dims)
