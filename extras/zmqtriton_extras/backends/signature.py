"""The tensors of a model: in its file, in its configuration, and for its sequences.

Sequence batching adds inputs that no client sends (controls and states), and outputs that clients
need not request (the next states). The server provides and keeps their values; this module has
their names. The texts of errors are Triton's.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Tuple

import triton_python_backend_utils as pb_utils

#: Fields that give the two values of a control, with their type.
_FLAG_TYPES = (
    ("int32_false_true", "TYPE_INT32"),
    ("fp32_false_true", "TYPE_FP32"),
    ("bool_false_true", "TYPE_BOOL"),
)


class Io(NamedTuple):
    """An input or output as the model's file describes it; -1 is a dimension of any size."""

    name: str
    #: TYPE_FP32 and the like
    data_type: str
    #: with that of the batch; None if the file does not say
    dims: list[int] | None
    #: The model has a default for it.
    is_optional: bool = False


class Signature(NamedTuple):
    """The names of the tensors of a configuration, in its order, each once."""

    #: Inputs of clients, then controls, then states.
    inputs: List[str]
    #: Outputs for clients, then states.
    outputs: List[str]
    #: The outputs that the server keeps, also where no client asks for them.
    states: FrozenSet[str]
    has_batches: bool


def read(config: dict[str, Any]) -> Signature:
    """Return the signature of a configuration."""
    states = _states(config)
    kept = [state["output_name"] for state in states if state.get("output_name")]
    inputs = [entry["name"] for entry in config.get("input", ())]
    inputs += [name for name, _ in _controls(config)]
    inputs += [state["input_name"] for state in states]
    outputs = [entry["name"] for entry in config.get("output", ())] + kept
    return Signature(
        list(dict.fromkeys(inputs)),
        list(dict.fromkeys(outputs)),
        frozenset(kept),
        has_batches(config),
    )


def has_batches(config: dict[str, Any]) -> bool:
    return int(config.get("max_batch_size", 0)) > 0


def _batching(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("sequence_batching") or {}


def _states(config: dict[str, Any]) -> List[Dict[str, Any]]:
    return list(_batching(config).get("state") or ())


def _controls(config: dict[str, Any]) -> Iterator[Tuple[str, str]]:
    """Return the name and type of each control."""
    for entry in _batching(config).get("control_input") or ():
        for control in entry.get("control") or ():
            types = [kind for field, kind in _FLAG_TYPES if control.get(field)]
            yield entry["name"], types[0] if types else control.get("data_type", "")


# ------------------------------------------------------------- completion


def is_complete(config: dict[str, Any]) -> bool:
    """Return whether inputs and outputs are both configured, so that none is completed."""
    return bool(config.get("input") or config.get("batch_input")) and bool(config.get("output"))


def complete(config: Any, inputs: list[Io], outputs: list[Io]) -> None:
    """Complete a ModelConfig that lacks its inputs or outputs, and its batching."""
    document = config.as_dict()
    has_input = bool(document.get("input") or document.get("batch_input"))
    _complete_batching(document, [*inputs, *outputs])
    if not has_input:
        # no client sends controls and states
        added = set(read(document).inputs)
        _complete_tensors(document, "input", [io for io in inputs if io.name not in added])
    if not document.get("output"):
        _complete_tensors(document, "output", outputs)


def _complete_batching(document: dict[str, Any], tensors: Iterable[Io]) -> None:
    most = int(document.get("max_batch_size", 0))
    if not all(io.dims and io.dims[0] == -1 for io in tensors):
        if most:
            raise pb_utils.TritonModelException(
                f"autofill failed for model '{document['name']}': model does not support batching "
                "while non-zero max_batch_size is specified"
            )
        return
    if not most:
        settings = pb_utils.get_backend_settings()
        most = document["max_batch_size"] = max(0, int(settings.get("default-max-batch-size", 0)))
    if most > 1 and "sequence_batching" not in document:
        document.setdefault("dynamic_batching", {})


def _complete_tensors(document: dict[str, Any], kind: str, tensors: list[Io]) -> None:
    first = 1 if has_batches(document) else 0
    entries = []
    for io in tensors:
        if io.dims is None:
            raise pb_utils.TritonModelException(
                f"the file of model '{document['name']}' does not say the shape of {kind} "
                f"'{io.name}'; add it to config.pbtxt"
            )
        entry: dict[str, Any] = {
            "name": io.name,
            "data_type": io.data_type,
            "dims": io.dims[first:],
        }
        if not entry["dims"]:  # the configuration has no tensor without dimensions
            entry["dims"] = [1]
            entry["reshape"] = {"shape": []}
        if kind == "input" and io.is_optional:
            entry["optional"] = True
        entries.append(entry)
    document[kind] = entries


# ------------------------------------------------------------------ check


def check(config: dict[str, Any], inputs: list[Io], outputs: list[Io]) -> None:
    """Check the configured tensors against the model's own."""
    takes, gives = {io.name: io for io in inputs}, {io.name: io for io in outputs}
    for name, data_type in _controls(config):
        _check_control(config, name, data_type, takes)
    required = {io.name for io in inputs if not io.is_optional}
    configured = read(config).inputs
    if not config.get("batch_input") and len(required) > len(configured):
        raise pb_utils.TritonModelException(
            f"unable to load model '{config['name']}', configuration expects {len(configured)} "
            f"inputs, model provides {len(inputs)}"
        )
    for kind, known in (("input", takes), ("output", gives)):
        for entry in config.get(kind, ()):
            _check_tensor(config, kind, entry, _allowed(kind, entry["name"], known))
        for state in _states(config):
            name = state.get(f"{kind}_name", "")
            if name:
                _check_tensor(config, f"{kind} state", state, _allowed(kind, name, known))


def _check_control(config: dict[str, Any], name: str, data_type: str, known: dict[str, Io]) -> None:
    io = known.get(name)
    if io is None:
        raise pb_utils.TritonModelException(
            f"configuration specified sequence control '{name}', but model does not provide that "
            "input"
        )
    where = f"unable to load model '{config['name']}', sequence control '{name}'"
    if io.dims is not None:
        dims = io.dims[1:] if has_batches(config) else io.dims
        if dims != [1]:
            raise pb_utils.TritonModelException(
                f"{where} in model has dims {_shape(dims)} but dims [1] is expected"
            )
    if io.data_type and io.data_type != data_type:
        raise pb_utils.TritonModelException(
            f"{where}, the model expects data-type {io.data_type} but the model configuration "
            f"specifies data-type {data_type}"
        )


def _allowed(kind: str, name: str, known: dict[str, Io]) -> Io:
    """Return the model's tensor of this name. Raises TritonModelException if it has none."""
    io = known.get(name)
    if io is None:
        allowed = ", ".join(sorted(known))
        raise pb_utils.TritonModelException(
            f"unexpected inference {kind} '{name}', allowed {kind}s are: {allowed}"
        )
    return io


def _check_tensor(config: dict[str, Any], kind: str, entry: dict[str, Any], io: Io) -> None:
    name = config["name"]
    if io.data_type and entry["data_type"] != io.data_type:
        raise pb_utils.TritonModelException(
            f"unable to load model '{name}', configuration expects datatype {entry['data_type']} "
            f"for {kind} '{io.name}', model provides {io.data_type}"
        )
    if io.dims is None:
        return
    reshape = entry.get("reshape")
    allowed = entry.get("dims", ()) if reshape is None else reshape.get("shape", ())
    dims = list(map(int, allowed))
    if has_batches(config):
        dims = [-1, *dims]
    fits = len(dims) == len(io.dims) and all(
        here == there or -1 in (here, there) for here, there in zip(dims, io.dims)
    )
    if not fits:
        raise pb_utils.TritonModelException(
            f"model '{name}', tensor '{io.name}': the model expects {len(io.dims)} dimensions "
            f"(shape {_shape(io.dims)}) but the model configuration specifies {len(dims)} "
            f"dimensions (shape {_shape(dims)})"
        )


def _shape(dims: Iterable[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"
