"""Sessions of ONNX Runtime, made as a configuration says.

Reads the same settings as Triton's backend of this name: threads, execution mode, graph level,
execution accelerators, options of sessions, libraries of operators.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple, Union

import onnxruntime
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration
from zmqtriton_extras.backends.signature import Io

_DATA_TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}
_OPTIMIZATIONS = {
    -1: "ORT_ENABLE_BASIC",
    0: "ORT_ENABLE_ALL",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}
#: The parameters of a model with these beginnings are entries of the session's configuration.
_ENTRIES = ("session.", "optimization.", "mlas.", "ep.")
_SPINNING = ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning")
#: Parameters of Triton's backend for CUDA: the values that have names, or none for a plain value.
_CUDA_PARAMETERS: Dict[str, Tuple[str, ...]] = {
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "gpu_mem_limit": (),
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
    "do_copy_in_default_stream": (),
}
_TENSORRT_NAMES = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_TENSORRT_PRECISIONS = {"FP32": "", "FP16": "trt_fp16_enable", "INT8": "trt_int8_enable"}

Provider = Union[str, Tuple[str, Dict[str, str]]]


class Plan(NamedTuple):
    """The settings of a session; equal plans make equal sessions, so that one can be shared."""

    path: str
    intra_op_threads: int
    inter_op_threads: int
    is_parallel: bool
    graph_level: int
    log_level: int
    has_arena: bool
    has_memory_pattern: bool
    entries: Tuple[Tuple[str, str], ...]
    libraries: Tuple[str, ...]
    providers: List[Provider]

    def open(self) -> Any:
        """Open the session. Raises TritonModelException with the library's reason."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.intra_op_threads
        options.inter_op_num_threads = self.inter_op_threads
        if self.is_parallel:
            options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        level = _OPTIMIZATIONS[self.graph_level]
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.log_severity_level = self.log_level
        options.enable_cpu_mem_arena = self.has_arena
        options.enable_mem_pattern = self.has_memory_pattern
        try:
            for name, value in self.entries:
                options.add_session_config_entry(name, value)
            for library in self.libraries:
                options.register_custom_ops_library(library)
            return onnxruntime.InferenceSession(self.path, options, providers=self.providers)
        except Exception as error:
            raise pb_utils.TritonModelException(f"onnxruntime: {error}") from error


def plan(config: dict[str, Any], kind: str, device: str) -> Plan:
    """Return the plan for the session of an instance. Raises TritonModelException."""
    number = configuration.number
    level = int((config.get("optimization", {}).get("graph") or {}).get("level", 0))
    if level not in _OPTIMIZATIONS:
        raise pb_utils.TritonModelException(
            f"optimization.graph.level of model '{config['name']}' must be -1, 0, 1 or 2, "
            f"got {level}"
        )
    operations = config.get("model_operations") or {}
    return Plan(
        path=find_model(config),
        intra_op_threads=configuration.threads(config),
        inter_op_threads=number(config, "inter_op_thread_count", 0),
        is_parallel=number(config, "execution_mode", 0) == 1,
        graph_level=level,
        log_level=number(config, "session_log_severity_level", 2),
        has_arena=configuration.flag(config, "enable_mem_arena", default=True),
        has_memory_pattern=configuration.flag(config, "enable_mem_pattern", default=True),
        entries=(*_spinning(config), *_entries(config)),
        libraries=tuple(operations.get("op_library_filename") or ()),
        providers=_providers(config, kind, device),
    )


def _spinning(config: dict[str, Any]) -> Iterator[Tuple[str, str]]:
    """Return settings that let waiting threads sleep instead of spin, as others need the cores."""
    for name in _SPINNING:
        yield name, configuration.parameter(config, name, "0")


def _entries(config: dict[str, Any]) -> Iterator[Tuple[str, str]]:
    for name, value in sorted((config.get("parameters") or {}).items()):
        if name.startswith(_ENTRIES) and name not in _SPINNING:
            yield name, str(value.get("string_value", ""))


def find_model(config: dict[str, Any]) -> str:
    """Return the path of the file; a directory has it as model.onnx, with its external data."""
    path = configuration.find_file(config, "model.onnx")
    if not os.path.isdir(path):
        return path
    inner = os.path.join(path, "model.onnx")
    if not os.path.isfile(inner):
        raise pb_utils.TritonModelException(
            f"unable to find '{inner}' for model '{config['name']}'"
        )
    return inner


def _providers(config: dict[str, Any], kind: str, device: str) -> list[Provider]:
    """Return the execution providers; a node of the graph goes to the first that can run it."""
    accelerators = (config.get("optimization") or {}).get("execution_accelerators") or {}
    providers: List[Provider] = []
    if kind == "GPU":
        cuda = {"device_id": device, **_cuda_parameters(config)}
        for one in accelerators.get("gpu_execution_accelerator") or ():
            options = _options_of(one)
            if one["name"] == "tensorrt":
                providers.append(("TensorrtExecutionProvider", _tensorrt(options, device)))
            elif one["name"] == "cuda":
                cuda.update(options)
            else:
                raise _unknown_accelerator(one)
        providers.append(("CUDAExecutionProvider", cuda))
    for one in accelerators.get("cpu_execution_accelerator") or ():
        if one["name"] != "openvino":
            raise _unknown_accelerator(one)
        providers.append(("OpenVINOExecutionProvider", {"device_type": "CPU", **_options_of(one)}))
    _check_available(providers)
    return [*providers, "CPUExecutionProvider"]


def _check_available(providers: list[Provider]) -> None:
    available = onnxruntime.get_available_providers()
    for provider in providers:
        if provider[0] not in available:
            raise pb_utils.TritonModelException(
                f"the onnxruntime that is installed has no {provider[0]}, only "
                f"{', '.join(available)}; install onnxruntime-gpu for CUDA and TensorRT, "
                "onnxruntime-openvino for OpenVINO, or configure KIND_CPU without accelerators"
            )


def _options_of(accelerator: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in (accelerator.get("parameters") or {}).items()}


def _unknown_accelerator(accelerator: dict[str, Any]) -> Any:
    return pb_utils.TritonModelException(
        f"unknown Execution Accelerator '{accelerator['name']}' is requested"
    )


def _cuda_parameters(config: dict[str, Any]) -> dict[str, str]:
    parameters = {}
    for name, values in _CUDA_PARAMETERS.items():
        text = configuration.parameter(config, name)
        if not text:
            continue
        if values:
            if text not in map(str, range(len(values))):
                raise pb_utils.TritonModelException(
                    f"unsupported {name} value '{text}' is requested"
                )
            text = values[int(text)]
        parameters[name] = text
    return parameters


def _tensorrt(options: dict[str, str], device: str) -> dict[str, str]:
    tensorrt = {"device_id": device}
    for name, value in options.items():
        if name == "precision_mode":
            if value not in _TENSORRT_PRECISIONS:
                raise pb_utils.TritonModelException(
                    f"unsupported precision mode '{value}' is requested"
                )
            if _TENSORRT_PRECISIONS[value]:
                tensorrt[_TENSORRT_PRECISIONS[value]] = "1"
        elif name in _TENSORRT_NAMES or name.startswith("trt_"):
            tensorrt[_TENSORRT_NAMES.get(name, name)] = value
        else:
            raise pb_utils.TritonModelException(
                f"unknown parameter '{name}' is provided for TensorRT Execution Accelerator"
            )
    return tensorrt


def tensors(session: Any) -> tuple[list[Io], list[Io]]:
    """Return the inputs and outputs of a session's model. Raises TritonModelException."""
    inputs = [_io(one) for one in session.get_inputs()]
    # an initializer of the same name is the default
    inputs += [
        _io(one)._replace(is_optional=True) for one in session.get_overridable_initializers()
    ]
    return inputs, [_io(one) for one in session.get_outputs()]


#: The remedy for classifiers of scikit-learn, whose converter adds a ZipMap.
_ZIPMAP = ' Convert a classifier of scikit-learn with options={"zipmap": False}.'


def _io(tensor: Any) -> Io:
    if tensor.type not in _DATA_TYPES:
        if tensor.type.startswith("tensor("):
            raise pb_utils.TritonModelException(
                f"unsupported datatype {tensor.type} for I/O '{tensor.name}'"
            )
        raise pb_utils.TritonModelException(
            f"Unsupported ONNX Type '{tensor.type}' for I/O '{tensor.name}', expected "
            f"'ONNX_TYPE_TENSOR'.{_ZIPMAP if 'map(' in tensor.type else ''}"
        )
    dims = [dim if isinstance(dim, int) and dim >= 0 else -1 for dim in tensor.shape]
    return Io(tensor.name, _DATA_TYPES[tensor.type], dims)
