"""The signature of a function, by its hints, and the configuration that follows from it."""

from __future__ import annotations

import collections.abc
import inspect
import json
import typing
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from zmqtriton_extras.functions.backend.api import MARK, End, Settings
from zmqtriton_extras.functions.backend.documents import (
    Documents,
    kind_of,
    without_end,
    without_none,
)
from zmqtriton_extras.functions.backend.kinds import CONTENT, Arrays, HintError, Kind, Place
from zmqtriton_extras.functions.backend.media import Audio
from zmqtriton_floor.descriptions import described
from zmqtriton_floor.documents import limits_of

_STREAMS = (
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncIterator,
    collections.abc.Generator,
    collections.abc.Iterable,
    collections.abc.Iterator,
)
#: The parameter of the configuration that describes a function to the server.
DESCRIPTION = "FUNCTION"
#: Prefixes of parameters that name a text, and a sound, for OpenAI's routes.
_TEXT, _SOUND = "openai_text", "openai_audio"
#: Names of outputs with more about a text, for OpenAI's routes.
_ABOUT_TEXT = (
    "finish_reason",
    "logprobs",
    "num_input_tokens",
    "num_output_tokens",
    "tool_calls",
)
#: Name of the output of a function that returns one value.
OUTPUT = "output"
#: The parameter of the configuration that bounds the open requests of an instance.
MAX_STREAMS = "MAX_STREAMS"
#: Maximum number of calls of an `async def` at the same time.
_OVERLAPPING = "64"


class Parameter(NamedTuple):
    """A parameter of the function, or one of its outputs, which has no default."""

    name: str
    kind: Kind
    #: True if a request, or a response, may lack it.
    is_nullable: bool
    #: True in a batch for a value with one entry for each row of a request.
    has_entries: bool
    has_default: bool = False
    #: The function's default, or None.
    default: Any = None

    @property
    def is_optional(self) -> bool:
        return self.has_default or self.is_nullable


class Signature(NamedTuple):
    """The interface of a function."""

    settings: Settings
    parameters: List[Parameter]
    outputs: List[Parameter]
    #: The type with one output a field; None if the function returns one value.
    fields_of: Any
    is_stream: bool
    is_async: bool
    about: str

    def values(self, answer: Any) -> Dict[str, Any]:
        """Return the value of each output. Raises TypeError."""
        if self.fields_of is None:
            return {OUTPUT: answer}
        if isinstance(answer, dict):
            return answer
        if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
            return dict(answer._asdict())
        raise TypeError(
            f"the function must return {self.fields_of.__name__}, got {described(answer)}"
        )


def read(marked: Any) -> Signature:
    """Return the signature of what `@model` has marked. Raises HintError."""
    settings: Settings = getattr(marked, MARK)
    function = marked.__call__ if inspect.isclass(marked) else marked
    if settings.streams:
        function = _admit_of(marked, settings)
    try:
        hints = typing.get_type_hints(function)
        if settings.streams:
            hints["return"] = typing.get_type_hints(marked.step).get("return")
    except (NameError, TypeError) as error:
        raise HintError(f"the hints of {marked.__name__} cannot be read: {error}") from error
    rows = list(inspect.signature(function).parameters.values())[inspect.isclass(marked) :]
    parameters = [_parameter(row, hints, has_batches=settings.batch > 0) for row in rows]
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    returned, is_stream = hints.get("return"), False
    if typing.get_origin(returned) in _STREAMS:
        returned, is_stream = typing.get_args(returned)[0], True
    if settings.streams:
        returned, is_stream = without_end(returned, End), True
    if is_generator and not is_stream:
        raise HintError(f"{marked.__name__} yields: its return hint must be Iterator[...]")
    if settings.batch and is_stream:
        raise HintError("a function that streams answers requests one by one: it has no batch")
    if settings.batch and not any(each.has_entries for each in parameters):
        raise HintError("batch is for functions with a parameter that is a list, or an array")
    fields_of, outputs = _outputs(returned, has_batches=settings.batch > 0)
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    about = inspect.getdoc(function) or (settings.streams and inspect.getdoc(marked)) or ""
    _limit(parameters, settings)
    return Signature(settings, parameters, outputs, fields_of, is_stream, is_async, about)


def _limit(parameters: Sequence[Parameter], settings: Settings) -> None:
    for kind in [each.kind for each in parameters if isinstance(each.kind, Documents)]:
        kind.limits = limits_of(settings.json_bytes)


def _admit_of(marked: Any, settings: Settings) -> Any:
    """Return the method that has the hints of a class with streams. Raises HintError."""
    names = ["admit", "step", *["units"][: settings.room > 0]]
    for name in names:
        method = getattr(marked, name, None)
        if not callable(method):
            text = f"@model(streams=…) is for a class with {' and '.join(names)}"
            raise HintError(f"{text}: {marked.__name__} has no {name}")
        if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
            raise HintError(f"{name} of {marked.__name__} must be a plain function")
    return marked.admit


def _parameter(row: inspect.Parameter, hints: Dict[str, Any], *, has_batches: bool) -> Parameter:
    if row.kind not in (row.POSITIONAL_OR_KEYWORD, row.KEYWORD_ONLY):
        raise HintError(f"parameter '{row.name}' must be one that has a name and a value")
    if row.name not in hints:
        raise HintError(f"parameter '{row.name}' needs a hint, such as {row.name}: str")
    has_default = row.default is not row.empty
    with Place(f"parameter '{row.name}'"):
        hint, is_nullable = without_none(hints[row.name])
        kind, has_entries = _kind(hint, has_batches=has_batches)
        if has_entries and (has_default or is_nullable):
            raise HintError("in a batch each request has entries: there is no default for them")
    default = row.default if has_default else None
    return Parameter(row.name, kind, is_nullable, has_entries, has_default, default)


def _outputs(hint: Any, *, has_batches: bool) -> Tuple[Any, List[Parameter]]:
    with Place("the return value"):
        if hint in (None, type(None)):
            raise HintError("it needs a hint, such as -> str")
        fields = _fields(hint)
    rows = []
    for name, each in (fields or {OUTPUT: hint}).items():
        with Place(f"output '{name}'"):
            inner, is_nullable = without_none(each)
            kind, has_entries = _kind(inner, has_batches=has_batches)
            if has_batches and (is_nullable or not has_entries):
                raise HintError("in a batch it must be a list or an array of entries")
        rows.append(Parameter(name, kind, is_nullable, has_entries))
    return (hint if fields else None), rows


def _fields(hint: Any) -> Dict[str, Any]:
    """Return the hints of a NamedTuple or TypedDict by field; {} for all else."""
    is_tuple = isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
    is_typed_dict = isinstance(hint, type) and issubclass(hint, dict) and hint is not dict
    return typing.get_type_hints(hint) if is_tuple or is_typed_dict else {}


def _kind(hint: Any, *, has_batches: bool) -> Tuple[Kind, bool]:
    """Return the kind of a value, or of one entry of a batch, and whether it is of an entry."""
    if has_batches and typing.get_origin(hint) is list:
        return kind_of(typing.get_args(hint)[0]), True
    kind = kind_of(hint)
    if has_batches and isinstance(kind, Arrays) and kind.dims[0] == -1:
        return kind.entry(), True
    return kind, False


# ---------------------------------------------------------- configuration


def complete(config: Any, signature: Signature) -> Any:
    """Return a ModelConfig with all that the hints say. Raises ValueError if it says otherwise."""
    document = config.as_dict()
    _check_names(document, "input", signature.parameters)
    _check_names(document, "output", signature.outputs)
    for parameter in signature.parameters:
        is_optional = {"optional": True} if parameter.is_optional else {}
        config.add_input({**_tensor(parameter), **is_optional})
    for output in signature.outputs:
        config.add_output(_tensor(output))
    if signature.is_stream or document.get("model_transaction_policy"):
        config.set_model_transaction_policy({"decoupled": signature.is_stream})
    _complete_batching(config, signature.settings)
    _complete_instances(document, signature)
    return config


def _check_names(document: Dict[str, Any], kind: str, rows: Sequence[Parameter]) -> None:
    names = [row.name for row in rows]
    for entry in document.get(kind, ()):
        if entry["name"] not in names:
            raise ValueError(f"the function has no {kind} '{entry['name']}'")


def _complete_batching(config: Any, settings: Settings) -> None:
    document = config.as_dict()
    if not (settings.batch and document.get("max_batch_size")):
        config.set_max_batch_size(settings.batch)
    if settings.batch and "sequence_batching" not in document:
        config.set_dynamic_batching()
        if settings.delay_ms:
            delay = {"max_queue_delay_microseconds": round(1000 * settings.delay_ms)}
            document["dynamic_batching"] = {**delay, **document["dynamic_batching"]}


def _complete_instances(document: Dict[str, Any], signature: Signature) -> None:
    if signature.settings.instances > 1 and not document.get("instance_group"):
        # named as the group that a model without one gets
        group = {"name": document.get("name", ""), "count": signature.settings.instances}
        document["instance_group"] = [group]
    parameters = document.setdefault("parameters", {})
    parameters[DESCRIPTION] = {"string_value": json.dumps(describe(signature))}
    inputs = [each for each in signature.parameters if _openai(each)]
    outputs = [each for each in signature.outputs if each.name not in _ABOUT_TEXT]
    if len(inputs) == len(outputs) == 1 and _openai(outputs[0]):
        for row, kind in ((inputs[0], "input"), (outputs[0], "output")):
            parameters.setdefault(f"{_openai(row)}_{kind}", {"string_value": row.name})
    if signature.settings.streams:
        parameters.setdefault(MAX_STREAMS, {"string_value": str(signature.settings.streams)})
    if signature.is_async and not signature.is_stream:
        parameters.setdefault("MAX_INFLIGHT", {"string_value": _OVERLAPPING})


def _openai(row: Parameter) -> str:
    """Return which parameters name a value, if it is a text or a sound without a default."""
    if row.is_optional:
        return ""
    if row.kind.schema.get(CONTENT) == Audio.content_type:
        return _SOUND
    return _TEXT if row.kind.schema == {"type": "string"} else ""


def describe(signature: Signature) -> Dict[str, Any]:
    """Return the description of a function for the server, as JSON."""
    return {
        "about": signature.about,
        "has_batches": signature.settings.batch > 0,
        "is_stream": signature.is_stream,
        "input": {
            "type": "object",
            "properties": {each.name: _schema(each) for each in signature.parameters},
            "required": [each.name for each in signature.parameters if not each.is_optional],
        },
        "output": {
            "type": "object",
            "properties": {each.name: each.kind.schema for each in signature.outputs},
        },
    }


def _schema(parameter: Parameter) -> Dict[str, Any]:
    """Return the schema of an argument, with its default where JSON can have it."""
    default, schema = parameter.default, parameter.kind.schema
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return schema
    return {**schema, "default": default} if parameter.is_optional else schema


def _tensor(row: Parameter) -> Dict[str, Any]:
    return {"name": row.name, "data_type": row.kind.datatype, "dims": row.kind.dims}


def functions_of(module: Any) -> Iterator[Any]:
    """Iterate over the marked functions and classes of a module."""
    for value in vars(module).values():
        if MARK in getattr(value, "__dict__", {}) and value.__module__ == module.__name__:
            yield value
