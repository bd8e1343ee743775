"""Models of PyTorch from their files, each as a callable with its known arguments.

TorchScript (.pt), programs of torch.export and packages of AOTInductor (.pt2), and a class in a
model.py with its weights in a .pt. Named tensors become arguments of forward(), and its results
become named outputs.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution
from zmqtriton_extras.backends.pytorch import kernels
from zmqtriton_extras.backends.signature import Io

DATA_TYPES = {
    torch.bool: "TYPE_BOOL",
    torch.uint8: "TYPE_UINT8",
    torch.int8: "TYPE_INT8",
    torch.int16: "TYPE_INT16",
    torch.int32: "TYPE_INT32",
    torch.int64: "TYPE_INT64",
    torch.float16: "TYPE_FP16",
    torch.bfloat16: "TYPE_BF16",
    torch.float32: "TYPE_FP32",
    torch.float64: "TYPE_FP64",
}
_INDEXED = re.compile(r".*__(\d+)")


class Argument(NamedTuple):
    name: str
    #: True for a dictionary of tensors, and for a list of tensors.
    is_dictionary: bool = False
    is_list: bool = False

    @classmethod
    def of_type(cls, name: str, text: str) -> Argument:
        """Return an argument by its type as TorchScript or Python writes it."""
        plain = text.replace("typing.", "").replace("torch.", "").lower()
        return cls(name, plain.startswith("dict[str"), plain == "list[tensor]")


class Module(NamedTuple):
    """A model to call."""

    call: Any
    #: Arguments of forward(); empty if the file does not name them.
    arguments: List[Argument]
    #: Device of its tensors.
    device: Any
    #: Runs in inference mode unless the configuration says otherwise.
    prefers_inference_mode: bool = False
    #: Inputs and outputs, if the file describes them.
    inputs: Optional[List[Io]] = None
    outputs: Optional[List[Io]] = None


def load(config: dict[str, Any], kind: str, device: str) -> Module:
    """Return the model of the version. Raises TritonModelException with PyTorch's reason."""
    path = configuration.find_file(config, "model.pt", "model.pt2", "model.py")
    where = torch.device(f"cuda:{device}" if kind == "GPU" else "cpu")
    if kind == "GPU" and (why := kernels.missing(torch, int(device))):
        raise pb_utils.TritonModelException(why)
    code = _code_of(path)
    # not below, since what a user's code raises is told with its lines
    module = _instance(code, config) if code else None
    try:
        if module is not None:
            return _with_weights(module, code, config, where, has_place=kind != "MODEL")
        if path.endswith(".pt2"):
            return _package(path, where)
        return _script(path, None if kind == "MODEL" else where)
    except pb_utils.TritonModelException:
        raise
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"torch: cannot load {path}; save it with this torch: {error}"
        ) from error


def _code_of(path: str) -> str:
    """Return the file with the class of a model, or "" if the model's file needs none."""
    code = os.path.join(os.path.dirname(path), "model.py")
    if path.endswith((".py", ".pt2")):
        return path if path.endswith(".py") else ""
    return code if os.path.isfile(code) and not _is_script(path) else ""


def _members(path: str) -> List[str]:
    """Return the names in an archive, without its top folder; [] if the file is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.partition("/")[2] for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []


def _is_script(path: str) -> bool:
    return any(name.startswith("code/") for name in _members(path))


def _script(path: str, device: Any) -> Module:
    # a file of other origin may be a pickle, which would run what it likes
    if not _is_script(path):
        raise pb_utils.TritonModelException(
            f"{path} is no TorchScript; save a module by torch.jit.script(module).save(), or put "
            "its class into model.py beside its weights"
        )
    module = torch.jit.load(path, map_location=device).eval()
    arguments = [
        Argument.of_type(argument.name, argument.type.annotation_str)
        for argument in module.forward.schema.arguments[1:]
    ]
    return Module(module, arguments, device or _device_of(module))


def _package(path: str, device: Any) -> Module:
    members = _members(path)
    if any(name.startswith("data/aotinductor/") for name in members):
        index = -1 if device.index is None else device.index
        return Module(torch._inductor.aoti_load_package(path, device_index=index), [], device)
    program = torch.export.load(path)
    module = program.module()
    if device.type != "cpu":
        module = module.to(device)
    names = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]
    inputs, outputs = _tensors(program)
    return Module(module, [Argument(name) for name in names], device, True, inputs, outputs)


def _tensors(program: Any) -> tuple[list[Io], list[Io]]:
    """Return the inputs and outputs of an exported program."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    inputs = [(name, values.get(name)) for name in signature.user_inputs]
    outputs = [
        (f"OUTPUT__{place}", values.get(name)) for place, name in enumerate(signature.user_outputs)
    ]
    return _described(inputs), _described(outputs)


def _described(named: list[tuple[str, Any]]) -> list[Io]:
    return [
        Io(name, DATA_TYPES[value.dtype], [d if isinstance(d, int) else -1 for d in value.shape])
        for name, value in named
        if isinstance(value, torch.Tensor) and value.dtype in DATA_TYPES
    ]


def _instance(path: str, config: dict[str, Any]) -> Any:
    """Return an object of the class in a file. Raises whatever its code raises."""
    spec = importlib.util.spec_from_file_location(f"model_{config['name']}", path)
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    return _class_in(code, path)()


def _with_weights(
    module: Any, path: str, config: dict[str, Any], device: Any, has_place: bool
) -> Module:
    """Return a module with the weights from the file next to its code."""
    weights = path[: -len(".py")] + ".pt"
    if os.path.isfile(weights):
        module.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
    else:
        pb_utils.Logger.log_info(f"no weights in {weights}")
    if has_place:
        module.to(device)
    module.eval()
    arguments = [
        Argument.of_type(name, _annotation(parameter))
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    options = configuration.parameter(config, "TORCH_COMPILE_OPTIONAL_PARAMETERS")
    call = torch.compile(module, **_compile_options(options)) if options else module
    return Module(call, arguments, device if has_place else _device_of(module), True)


def _class_in(code: Any, path: str) -> Any:
    """Return the class that the file defines, the first by name if there are several."""
    for _, cls in sorted(vars(code).items()):
        is_class = isinstance(cls, type) and issubclass(cls, torch.nn.Module)
        if is_class and cls.__module__ == code.__name__:
            return cls
    raise pb_utils.TritonModelException(
        f"Cannot find a subclass of torch.nn.Module in {path}; write one"
    )


def _annotation(parameter: Any) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else str(annotation)


def _compile_options(text: str) -> Dict[str, Any]:
    options = json.loads(text)
    if not isinstance(options, dict) or "model" in options:
        raise pb_utils.TritonModelException(
            "TORCH_COMPILE_OPTIONAL_PARAMETERS must be a JSON object, without 'model', got "
            f"'{text}'"
        )
    return options


def _device_of(module: Any) -> Any:
    return next((weights.device for weights in module.parameters()), torch.device("cpu"))


def order(names: list[str], arguments: list[Argument]) -> list[str]:
    """Return the names of tensors in the order of the arguments.

    Their names equal the arguments', or end in __0, __1 and so on, or else they keep their order.
    """
    own_names = [argument.name for argument in arguments]
    if own_names and all(name in own_names for name in names):
        return sorted(names, key=own_names.index)
    places = [_INDEXED.fullmatch(name) for name in names]
    if names and all(places):
        return sorted(names, key=lambda name: int(_INDEXED.sub(r"\1", name)))
    return names


def arguments_for(inputs: dict[str, Any], names: list[str], arguments: list[Argument]) -> list[Any]:
    """Return the positional arguments for a call. `names` are those of the inputs, in order."""
    tensors: List[Any] = [_argument(inputs.get(name), name) for name in names]
    if len(arguments) == 1 and arguments[0].is_dictionary:
        return [{name: tensor for name, tensor in zip(names, tensors) if tensor is not None}]
    if len(arguments) == 1 and arguments[0].is_list:
        return [tensors]
    own_names = [argument.name for argument in arguments]
    if all(name in own_names for name in names):
        by_name = dict(zip(names, tensors))
        last = max((own_names.index(name) for name in names), default=-1)
        return [by_name.get(name) for name in own_names[: last + 1]]
    return tensors


def _argument(value: Any, name: str) -> Any:
    """Return a tensor as it is, and strings as a list: PyTorch has no tensors of strings."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size != max(value.shape, default=1):
        raise ValueError(f"input '{name}' of strings must have one dimension, got {value.shape}")
    return execution.to_strings(value.reshape(-1), name).tolist()


def outputs_of(returned: Any, names: list[str]) -> dict[str, Any]:
    """Return the named outputs of a call. `names` has all configured ones, in order."""
    if isinstance(returned, dict):
        missing = [name for name in names if name not in returned]
        if missing:
            raise ValueError(
                f"the model must return '{missing[0]}', not only {', '.join(map(str, returned))}"
            )
        return {name: _array(returned[name], name) for name in names}
    is_text = isinstance(returned, list) and bool(returned) and isinstance(returned[0], str)
    values = returned if isinstance(returned, (tuple, list)) and not is_text else [returned]
    if len(values) < len(names):
        raise ValueError(
            f"The number of outputs of the model is {len(values)}, expected {len(names)}"
        )
    return {name: _array(value, name) for name, value in zip(names, values)}


def _array(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        return value if value.dtype == torch.bfloat16 else value.numpy()
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return np.array([item.encode() for item in value], dtype=np.object_)
    raise ValueError(f"output '{name}' is of type {type(value).__name__}, but must be a tensor")


def to_tensor(tensor: Any, device: Any) -> Any:
    """Return a Tensor of the request as a PyTorch tensor; strings stay an array."""
    if not tensor.is_cpu():
        return torch.from_dlpack(tensor).to(device)
    try:
        array = tensor.as_numpy()
    except pb_utils.TritonModelException:  # a type that numpy lacks
        return torch.from_dlpack(tensor).to(device)
    if array.dtype.kind == "O":
        return array
    return torch.from_numpy(array).to(device)


def join(arrays: list[Any]) -> Any:
    return np.concatenate(arrays) if isinstance(arrays[0], np.ndarray) else torch.cat(arrays)
