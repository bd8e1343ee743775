"""Checks the files of models of frameworks as far as they can be read without the framework.

A file must be of its format, and have the tensors that the configuration names. Only a load shows
whether the framework can run it. The first functions read protobuf messages without their
descriptors, which only the frameworks have.
"""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from zmqtriton.sdk.models import Problem, parameter_text

#: Fields of onnx.proto: of a model its graph, of that its tensors, of these their names.
_GRAPH, _INITIALIZER, _INPUT, _OUTPUT = 7, 5, 11, 12
_INITIALIZER_NAME, _VALUE_NAME, _VALUE_TYPE = 8, 1, 2
#: Fields of a type that is no tensor, and the field of a sequence for its elements' type.
_SEQUENCE, _MAP, _ELEMENT = 4, 5, 1
_MAPS = "maps"
#: The remedy for classifiers of scikit-learn, whose converter adds a ZipMap.
_ZIPMAP = '; convert a classifier of scikit-learn with options={"zipmap": False}'
#: Fields of saved_model.proto and of what it has inside; maps are messages of key and value.
_META_GRAPH, _SIGNATURE, _KEY, _VALUE, _INPUTS, _OUTPUTS = 2, 5, 1, 2, 1, 2
#: Fields of graph.proto: of a graph its nodes, of these their names and operations.
_NODE, _NODE_NAME, _OPERATION = 1, 1, 2
#: model_type of `fil` -> the file, and the bytes that it may begin with.
_FORESTS = {
    "xgboost_json": ("xgboost.json", (b"{",)),
    "xgboost_ubj": ("xgboost.ubj", (b"{",)),
    "xgboost": ("xgboost.model", ()),
    "lightgbm": ("model.txt", (b"tree",)),
    "treelite_checkpoint": ("checkpoint.tl", ()),
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 10


def fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Return the number and the value of each field; bytes are not copied.

    Raises ValueError if the data are not a complete message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: memoryview | int
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"byte {at} is no field: copy the file again")
        if not number or at + size > len(data):
            raise ValueError(
                f"it ends within a field, after {len(data)} bytes: copy the file again"
            )
        yield number, data[at : at + size]
        at += size


def messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """Return the messages, strings or bytes of one field. Raises ValueError."""
    for key, value in fields(data):
        if key == number and isinstance(value, memoryview):
            yield value


def text(data: memoryview, number: int) -> str:
    """Return the string of a field, or "". Raises ValueError."""
    return next((bytes(one).decode("utf-8") for one in messages(data, number)), "")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError(f"byte {at} is no number: copy the file again")


class Tensors(NamedTuple):
    """The names of a model's tensors; None if its file does not show them."""

    inputs: list[str] | None = None
    outputs: list[str] | None = None
    #: Inputs that may be named, too.
    optional_inputs: frozenset[str] = frozenset()


def file_problems(config: Any, version: Path) -> Iterator[Problem]:
    """Return the error of the file of a version that a backend of ours would open."""
    read = _READERS.get(config.backend)
    if read is None:
        return
    path = version / config.default_model_filename
    try:
        tensors = read(path, config)
    except (ValueError, ElementTree.ParseError) as error:
        yield Problem(f"{path}: {error}")
        return
    except OSError as error:
        yield Problem(f"unable to read '{error.filename}' for model '{config.name}': {error}")
        return
    batching = config.sequence_batching
    yield from _control_problems(batching.control_input, tensors)
    inputs = [*_named(config.input, "input"), *_states(batching.state, "input_name")]
    yield from _name_problems("input", inputs, tensors.inputs, tensors.optional_inputs)
    outputs = [*_named(config.output, "output"), *_states(batching.state, "output_name")]
    yield from _name_problems("output", outputs, tensors.outputs)


def _named(entries: Any, section: str) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Return the name of each entry, and the place of the name."""
    for index, entry in enumerate(entries):
        yield entry.name, (section, index, "name")


def _states(states: Any, field: str) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Return the name in this field of each state that has one, and the place of the name."""
    for index, state in enumerate(states):
        name = getattr(state, field)
        if name:
            yield name, ("sequence_batching", "state", index, field)


def _control_problems(controls: Any, tensors: Tensors) -> Iterator[Problem]:
    for index, control in enumerate(controls):
        if tensors.inputs is not None and control.name not in tensors.inputs:
            yield Problem(
                f"configuration specified sequence control '{control.name}', but model does not "
                "provide that input",
                ("sequence_batching", "control_input", index, "name"),
            )


def _name_problems(
    kind: str,
    named: Iterable[tuple[str, tuple[str | int, ...]]],
    names: list[str] | None,
    more: frozenset[str] = frozenset(),
) -> Iterator[Problem]:
    for name, field in named:
        if names is not None and name not in names and name not in more:
            allowed = ", ".join(sorted({*names, *more}))
            yield Problem(
                f"unexpected inference {kind} '{name}', allowed {kind}s are: {allowed}", field
            )


def _read_onnx(path: Path, _: Any) -> Tensors:
    if path.is_dir():
        path = path / "model.onnx"
    if path.suffix != ".onnx":
        return Tensors()
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise ValueError("is no ONNX file: it is empty")
        # unmapped with its last part
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        graph = next(messages(data, _GRAPH), None)
        if graph is None:
            raise ValueError("it has no graph")
        constants = {text(one, _INITIALIZER_NAME) for one in messages(graph, _INITIALIZER)}
        inputs = [text(one, _VALUE_NAME) for one in messages(graph, _INPUT)]
        outputs = [text(one, _VALUE_NAME) for one in messages(graph, _OUTPUT)]
        others = [
            (text(one, _VALUE_NAME), other)
            for number in (_INPUT, _OUTPUT)
            for one in messages(graph, number)
            if (other := _other_than_tensor(one))
        ]
    except ValueError as error:
        raise ValueError(f"is no ONNX file: {error}") from None
    for name, other in others:
        raise ValueError(f"'{name}' is a {other}, not a tensor{_ZIPMAP * other.endswith(_MAPS)}")
    names = [name for name in inputs if name not in constants]
    return Tensors(names, outputs, frozenset(constants.intersection(inputs)))


def _other_than_tensor(value: memoryview) -> str:
    """Return the kind of an ONNX file's input or output that is not a tensor; "" for a tensor."""
    for of_value in messages(value, _VALUE_TYPE):
        for sequence in messages(of_value, _SEQUENCE):
            elements = messages(sequence, _ELEMENT)
            has_maps = any(True for one in elements for _ in messages(one, _MAP))
            return f"sequence of {_MAPS}" if has_maps else "sequence"
        if any(True for _ in messages(of_value, _MAP)):
            return _MAPS
    return ""


def _read_pytorch(path: Path, _: Any) -> Tensors:
    has_code = path.with_name("model.py").is_file()
    for name in (path.name, "model.pt2"):
        file = path.with_name(name)
        if not file.is_file() or file.suffix not in (".pt", ".pt2"):
            continue
        if not zipfile.is_zipfile(file) and not (has_code and file.suffix == ".pt"):
            raise ValueError("is no TorchScript, no exported program and no package of AOTInductor")
        break
    return Tensors()


def _read_openvino(path: Path, _: Any) -> Tensors:
    if path.suffix != ".xml":
        return Tensors()
    root = ElementTree.parse(path).getroot()
    if root.tag != "net":
        raise ValueError(f"is no model of OpenVINO: it begins with <{root.tag}>")
    layers = {layer.get("id", ""): layer for layer in root.iter("layer")}
    if any(layer.get("type") == "Const" for layer in layers.values()):
        weights = path.with_suffix(".bin")
        weights.stat()
    names = {
        (number, port.get("id", "")): port.get("names", "").split(",")
        for number, layer in layers.items()
        for port in layer.iterfind("output/port")
    }
    parameters = [layer for layer in layers.values() if layer.get("type") == "Parameter"]
    results = {number for number, layer in layers.items() if layer.get("type") == "Result"}
    inputs = [
        name
        for layer in parameters
        for port in layer.iterfind("output/port")
        for name in port.get("names", "").split(",")
    ]
    outputs = [
        name
        for edge in root.iter("edge")
        if edge.get("to-layer", "") in results
        for name in names.get((edge.get("from-layer", ""), edge.get("from-port", "")), [""])
    ]
    # one without a name is called by its place
    return Tensors(
        inputs if all(inputs) else None,
        outputs if all(outputs) else None,
    )


def _read_tensorflow(path: Path, config: Any) -> Tensors:
    if config.platform == "tensorflow_graphdef":
        return _read_graph(path)
    file = path / "saved_model.pb"
    if not file.exists() and (path / "saved_model.pbtxt").exists():
        return Tensors()
    signature = parameter_text(config, "TF_SIGNATURE_DEF") or "serving_default"
    data = memoryview(file.read_bytes())
    try:
        signatures = {
            text(one, _KEY): value
            for graph in messages(data, _META_GRAPH)
            for one in messages(graph, _SIGNATURE)
            for value in messages(one, _VALUE)
        }
        if signature not in signatures:
            names = ", ".join(sorted(signatures)) or "none"
            raise ValueError(f"has no signature '{signature}'; it has {names}")
        inputs, outputs = (
            [text(one, _KEY) for one in messages(signatures[signature], number)]
            for number in (_INPUTS, _OUTPUTS)
        )
    except ValueError as error:
        raise ValueError(f"is no SavedModel that can be served: {error}") from None
    return Tensors(inputs, outputs)


def _read_graph(path: Path) -> Tensors:
    """Return the inputs of a GraphDef; as outputs, any of its operations may serve."""
    try:
        nodes = [
            (text(node, _NODE_NAME), text(node, _OPERATION))
            for node in messages(memoryview(path.read_bytes()), _NODE)
        ]
    except ValueError as error:
        raise ValueError(f"is no GraphDef: {error}") from None
    if not nodes:
        raise ValueError("is no GraphDef: it has no nodes")
    return Tensors([name for name, operation in nodes if operation == "Placeholder"])


def _read_forest(path: Path, config: Any) -> Tensors:
    kind = parameter_text(config, "model_type")
    files = [_FORESTS[kind]] if kind in _FORESTS else list(_FORESTS.values())
    version = path if path.is_dir() else path.parent
    if config.default_model_filename:
        files = [(config.default_model_filename, files[0][1] if len(files) == 1 else ())]
    present = [one for one in files if (version / one[0]).is_file()]
    if not present:
        names = "' or '".join(name for name, _ in files)
        raise ValueError(f"there is no '{names}'")
    name, starts = present[0]
    with (version / name).open("rb") as file:
        start = file.read(64).lstrip()
    if starts and not start.startswith(starts):
        raise ValueError(f"'{name}' begins with {start[:16]!r}, which no file of its format does")
    return Tensors(["input__0"], ["output__0"])


_READERS: dict[str, Callable[[Path, Any], Tensors]] = {
    "fil": _read_forest,
    "onnxruntime": _read_onnx,
    "openvino": _read_openvino,
    "pytorch": _read_pytorch,
    "tensorflow": _read_tensorflow,
}
