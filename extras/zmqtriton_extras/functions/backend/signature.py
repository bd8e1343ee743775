"""Reads the signature of a function from its hints, and writes the model's configuration."""

from __future__ import annotations

import collections.abc
import inspect
import json
import pathlib
import typing
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from zmqtriton_extras.functions.backend.adapters import fields_of, hints_of, without_none
from zmqtriton_extras.functions.backend.api import MARK, End, Settings
from zmqtriton_extras.functions.backend.documents import (
    JSON,
    Documents,
    document_kind,
    kind_of,
    kind_of_schema,
    name_of,
    without_end,
    write,
)
from zmqtriton_extras.functions.backend.kinds import (
    Arrays,
    HintError,
    Kind,
    MismatchError,
    Place,
    RaggedError,
    Scalars,
    as_base64,
)
from zmqtriton_extras.functions.backend.media import Audio
from zmqtriton_extras.functions.backend.names import CONTENT, DESCRIPTION
from zmqtriton_floor.sdk import described, documents

_STREAMS = (
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncIterator,
    collections.abc.Generator,
    collections.abc.Iterable,
    collections.abc.Iterator,
)
#: Kinds of values for OpenAI's routes. A parameter with a chat has the name `messages`.
_TEXT, _SOUND, _CHAT, _MESSAGE = "text", "audio", "messages", "message"
#: Names of outputs that OpenAI's routes add to a text.
_ABOUT_TEXT = (
    "finish_reason",
    "logprobs",
    "num_input_tokens",
    "num_output_tokens",
    "role",
    "tool_calls",
)
#: Name of the output of a function that returns one value.
OUTPUT = "output"
#: The configuration's parameter with the maximum number of open requests of an instance.
MAX_STREAMS = "MAX_STREAMS"
#: Suffix of the name of a second tensor: it has lists of different lengths as JSON.
RAGGED = ".ragged"
#: Maximum characters of a default in the description; longer ones are left out.
_MAX_DEFAULT = 1000
#: Maximum bytes of all examples in the description, with their files.
_MAX_EXAMPLES = 64 << 10
#: Maximum number of concurrent batches of an `async def`.
_OVERLAPPING = "64"


class Parameter(NamedTuple):
    """A parameter or an output of the function."""

    name: str
    kind: Kind
    #: True if the value can be None, so that a request or a response may lack it.
    is_nullable: bool
    #: True in batch mode if each row of a request has an entry of it.
    has_entries: bool
    has_default: bool = False
    #: The function's default, or None.
    default: Any = None
    #: Kind of its second tensor, for lists of different lengths; None if it has none.
    ragged: Any = None

    @property
    def is_optional(self) -> bool:
        return self.has_default or self.is_nullable


class Signature(NamedTuple):
    """The parameters, outputs and settings of a function."""

    settings: Settings
    parameters: List[Parameter]
    outputs: List[Parameter]
    #: The NamedTuple or TypedDict whose fields are the outputs; None for one output.
    fields_of: Any
    is_stream: bool
    is_async: bool
    about: str
    #: File and line of the function, for the log.
    place: str
    #: True if the model's process can find errors that the server cannot.
    is_checked: bool

    @property
    def defaults(self) -> Dict[str, Any]:
        """Return the defaults of the function by name."""
        return {each.name: each.default for each in self.parameters if each.has_default}

    def values(self, answer: Any) -> Dict[str, Any]:
        """Return the value of each output by name, for a return value. Raises TypeError."""
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
    """Return the signature of a function or class with `@model`. Raises HintError."""
    settings: Settings = getattr(marked, MARK)
    function = _function_of(marked, settings)
    try:
        hints = hints_of(function)
        if settings.streams:
            hints["return"] = hints_of(marked.step).get("return")
    except (NameError, TypeError) as error:
        raise HintError(f"correct the hints of {marked.__name__}: {error}") from error
    if "return" not in hints:
        raise HintError("the return value needs a hint, such as -> str, or -> None")
    return _signature(marked, function, hints)


def _signature(marked: Any, function: Any, hints: Dict[str, Any]) -> Signature:
    settings: Settings = getattr(marked, MARK)
    rows = list(inspect.signature(function).parameters.values())[inspect.isclass(marked) :]
    parameters = [_parameter(row, hints, has_batches=settings.batch > 0) for row in rows]
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    returned, is_stream = hints["return"], False
    if typing.get_origin(returned) in _STREAMS:
        returned, is_stream = (*typing.get_args(returned), Any)[0], True
    if settings.streams:
        returned, is_stream = without_end(returned, End), True
    has_entries = any(each.has_entries for each in parameters)
    faults = (
        (
            is_generator and not is_stream,
            f"{marked.__name__} yields: its return hint must be Iterator[...]",
        ),
        (
            settings.batch and is_stream,
            "a function that streams answers requests one by one: leave batch out",
        ),
        (
            settings.batch and not has_entries,
            "batch is for functions with a list or an array as a parameter, such as "
            "text: list[str]",
        ),
    )
    for is_there, text in faults:
        if is_there:
            raise HintError(text)
    if settings.cost:
        settings = settings._replace(cost=_cost_of(settings.cost, parameters))
    fields_of, outputs = _outputs(returned, has_batches=settings.batch > 0)
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    # a method without one has the docstring of `type.__call__`
    about = inspect.getdoc(function if function.__doc__ else marked) or ""
    for kind in [kind for each in parameters for kind in (each.kind, each.ragged)]:
        if isinstance(kind, Documents):
            kind.limits = documents.limits_of(settings.json_bytes)
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else marked.__name__
    is_checked = any(each.kind.adapter is not None for each in parameters)
    return Signature(
        settings,
        parameters,
        outputs,
        fields_of,
        is_stream,
        is_async,
        about,
        place,
        is_checked,
    )


def _cost_of(cost: Any, parameters: List[Parameter]) -> Any:
    """Return the measure of a cost that the broker can take, or else its function.

    Raises HintError.
    """
    if isinstance(cost, str):
        return cost
    if cost is len:
        lists = [each for each in parameters if each.has_entries]
        kind = lists[0].kind
        is_text = kind.datatype == "TYPE_STRING" and not getattr(kind, "depth", 1)
        if len(lists) > 1 or not (is_text or kind.dims[0] == -1):
            raise HintError("cost=len is for one list of texts, of lists or of arrays")
        return f"{'bytes' if is_text else 'elements'}({lists[0].name})"
    is_plain = not (inspect.iscoroutinefunction(cost) or inspect.isgeneratorfunction(cost))
    try:
        rows = [*inspect.signature(cost).parameters.values()]
    except (TypeError, ValueError):  # a number, or a builtin function without a signature
        is_plain, rows = False, []
    if not is_plain or any(row.kind is row.POSITIONAL_ONLY for row in rows):
        raise HintError(
            'cost must be len, a measure such as "bytes(text)", or a plain function that takes '
            "arguments by their names"
        )
    names = {each.name for each in parameters}
    strange = [row.name for row in rows if row.name not in names and row.default is row.empty]
    if strange:
        raise HintError(f"cost has the parameter '{strange[0]}', which the function lacks")
    return cost


def _examples(signature: Signature) -> List[Dict[str, Any]]:
    """Return the examples, whose files are read now: an instance starts without them."""
    rows = enumerate(signature.settings.examples or (), 1)
    examples = [_example(*row, signature.parameters) for row in rows]
    if len(json.dumps(examples)) > _MAX_EXAMPLES:
        raise HintError(f"examples: the page has {_MAX_EXAMPLES} bytes for all, in base64")
    return examples


def _example(number: int, example: Any, rows: List[Parameter]) -> Dict[str, Any]:
    """Return an example with its files in base64. Raises HintError if the function refuses it."""
    parameters = {each.name: each for each in rows}
    values = {}
    with Place(f"example {number}"):
        if not isinstance(example, collections.abc.Mapping):
            raise HintError('it must be a dict of arguments: examples=[{"text": "hello"}]')
        for name, value in example.items():
            with Place(name):
                if name not in parameters:
                    raise HintError(
                        f"there is no such argument; there are: {', '.join(parameters)}"
                    )
                values[name] = _checked(parameters[name], _as_json(parameters[name], value))
        for each in rows:
            if not each.is_optional and each.name not in example:
                raise HintError(f"it needs the argument '{each.name}'")
    return values


def _as_json(parameter: Parameter, value: Any) -> Any:
    try:
        if not isinstance(value, pathlib.Path):
            return json.loads(json.dumps(value))
        data = value.read_bytes()
        return as_base64(data) if parameter.kind.is_file else data.decode()
    except OSError as error:
        raise HintError(f"its file: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise HintError(f"write it as JSON: {error}") from None


def _checked(parameter: Parameter, value: Any) -> Any:
    as_sent = kind_of_schema(parameter.kind.schema)
    try:
        try:
            parameter.kind.decode(as_sent.encode(as_sent.from_json(value)))
        except RaggedError:
            if parameter.ragged is None:
                raise
            parameter.ragged.decode(parameter.ragged.encode(value))
    except MismatchError as error:
        raise HintError(str(error)) from None
    return value


def _function_of(marked: Any, settings: Settings) -> Any:
    """Return the function itself, or the method of a class that has the hints. Raises HintError."""
    if settings.streams:
        return _admit_of(marked, settings)
    if not inspect.isclass(marked):
        return marked
    names = {name for each in marked.__mro__ for name in vars(each)}
    if "__call__" not in names:
        text = f"{marked.__name__} has no __call__, which answers requests"
        text += "; rename its method predict to __call__" if "predict" in names else ""
        text += "; rename its method setup to __init__" if "setup" in names else ""
        raise HintError(text)
    return marked.__call__


def _admit_of(marked: Any, settings: Settings) -> Any:
    """Return `admit` of a class with streams. Raises HintError if a method is missing."""
    names = ["admit", "step", *["cost"][: settings.budget > 0]]
    for name in names:
        method = getattr(marked, name, None)
        if not callable(method):
            text = f"@model(streams=…) is for a class with {' and '.join(names)}"
            raise HintError(f"{text}: {marked.__name__} has no {name}")
        if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
            raise HintError(f"{name} of {marked.__name__} must be a plain function")
    return marked.admit


def _parameter(row: inspect.Parameter, hints: Dict[str, Any], *, has_batches: bool) -> Parameter:
    name, hint = row.name, hints.get(row.name, str)
    if name not in hints:
        raise HintError(f"parameter '{name}' needs a hint, such as {name}: str")
    remedies: Dict[Any, str] = {
        row.VAR_POSITIONAL: f"{name}: list[{name_of(hint)}] in place of *{name}",
        row.VAR_KEYWORD: f"{name}: dict[str, {name_of(hint)}] in place of **{name}",
        row.POSITIONAL_ONLY: f"{name}: {name_of(hint)} without a '/' behind it",
    }
    with Place(f"parameter '{name}'"):
        if row.kind in remedies:
            raise HintError(f"clients send each value by its name; write {remedies[row.kind]}")
        parameter = _row(name, hint, has_batches=has_batches)
        if parameter.has_entries and row.default is not row.empty:
            raise HintError("in a batch each request has entries: write it without a default")
        if row.default is not None and row.default is not row.empty:
            _check_default(parameter, row.default)
    if row.default is row.empty:
        return parameter
    is_nullable = parameter.is_nullable or row.default is None
    return parameter._replace(is_nullable=is_nullable, has_default=True, default=row.default)


def _check_default(parameter: Parameter, default: Any) -> None:
    kind = parameter.kind
    try:
        if isinstance(default, list) and parameter.ragged is not None:
            kind = parameter.ragged
        kind.decode(kind.encode(default))
    except MismatchError as error:
        text = f"its default does not fit the hint: {error}"
        if type(default).__name__ == "FieldInfo":
            text += f"; write {parameter.name}: Annotated[int, Field(ge=0)] = 0 for bounds"
        raise HintError(text) from None


def _row(name: str, hint: Any, *, has_batches: bool) -> Parameter:
    """Return the Parameter for a name and its hint. Raises HintError."""
    hint, is_nullable = without_none(hint)
    kind, has_entries = _kind(name, hint, has_batches=has_batches)
    if has_entries and is_nullable:
        raise HintError(f"in a batch each request has entries: write {name}: list[...]")
    has_ragged = type(kind) is Scalars and kind.depth > 1 and not has_batches
    ragged = document_kind(hint) if has_ragged else None
    return Parameter(name, kind, is_nullable, has_entries, ragged=ragged)


def _outputs(hint: Any, *, has_batches: bool) -> Tuple[Any, List[Parameter]]:
    with Place("the return value"):
        fields = _fields(hint)
    rows = []
    for name, each in (fields or {OUTPUT: hint}).items():
        with Place(f"output '{name}'"):
            row = _row(name, each, has_batches=has_batches)
            if has_batches and not row.has_entries:
                raise HintError(
                    "in a batch it must be a list or an array of entries: "
                    f"write -> list[{name_of(each)}]"
                )
        rows.append(row)
    return (hint if fields else None), rows


def _fields(hint: Any) -> Dict[str, Any]:
    """Return the hints of the fields of a NamedTuple or TypedDict; {} for any other hint."""
    is_tuple = isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
    return hints_of(hint) if is_tuple else fields_of(hint)[0] if hasattr(hint, "__total__") else {}


def _kind(name: str, hint: Any, *, has_batches: bool) -> Tuple[Kind, bool]:
    """Return the kind for a hint, and whether a value of it is one entry of a batch."""
    bare = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint
    if has_batches and list in (bare, typing.get_origin(bare)):
        if bare is not hint or bare is list or bare is List:
            raise HintError(f"in a batch write {name}: list[...] with the hint of one entry")
        return kind_of(typing.get_args(hint)[0]), True
    kind = kind_of(hint)
    if has_batches and isinstance(kind, Arrays) and kind.dims[0] == -1:
        return kind.entry(), True
    return kind, False


# ---------------------------------------------------------- configuration


def complete(config: Any, signature: Signature) -> Any:
    """Complete a ModelConfig by the function's hints. Raises ValueError if the two contradict."""
    inputs = "input", signature.parameters, config.add_input
    for what, rows, add in (inputs, ("output", signature.outputs, config.add_output)):
        tensors = [*_tensors(rows, are_inputs=what == "input")]
        names = {each["name"] for each in tensors}
        for entry in config.as_dict().get(what, ()):
            if entry["name"] not in names:
                raise ValueError(
                    f"the function has no {what} '{entry['name']}'; remove it from config.pbtxt"
                )
        for tensor in tensors:
            add(tensor)
    document = config.as_dict()
    if signature.is_stream or document.get("model_transaction_policy"):
        config.set_model_transaction_policy({"decoupled": signature.is_stream})
    _complete_batching(config, signature)
    _complete_instances(document, signature)
    return config


def _complete_batching(config: Any, signature: Signature) -> None:
    document, settings = config.as_dict(), signature.settings
    if not (settings.batch and document.get("max_batch_size")):
        config.set_max_batch_size(settings.batch)
    if settings.batch and "sequence_batching" not in document:
        config.set_dynamic_batching()
        if settings.delay_ms:
            delay = {"max_queue_delay_microseconds": round(1000 * settings.delay_ms)}
            document["dynamic_batching"] = {**delay, **document["dynamic_batching"]}
    parameters = document.setdefault("parameters", {})
    measures = {"BATCH_LIKE": settings.like}
    if settings.cost and isinstance(settings.cost, str):
        measures.update(BATCH_COST=settings.cost, MAX_BATCH_COST=f"{round(settings.budget)}")
    timing = {"BATCH_DELAY": settings.delay, "BATCH_TARGET": settings.target}
    for name, text in {**measures, **timing}.items():
        if text:
            parameters.setdefault(name, {"string_value": text})
    measured = " ".join(measures.values())
    for each in signature.parameters:
        # the function gets each entry by itself, so their sizes may differ
        if each.has_entries and not each.kind.is_row and f"({each.name})" in measured:
            (entry,) = [one for one in document["input"] if one["name"] == each.name]
            entry["allow_ragged_batch"] = -1 in each.kind.dims


def _complete_instances(document: Dict[str, Any], signature: Signature) -> None:
    if signature.settings.instances > 1 and not document.get("instance_group"):
        # named as the group that a model without one gets
        group = {"name": document.get("name", ""), "count": signature.settings.instances}
        document["instance_group"] = [group]
    parameters = document.setdefault("parameters", {})
    # half a surrogate pair in a docstring would have no JSON in the server
    text = json.dumps(describe(signature), ensure_ascii=False).encode(errors="replace").decode()
    parameters[DESCRIPTION] = {"string_value": text}
    for name, tensor in _openai(signature).items():
        parameters.setdefault(name, {"string_value": tensor})
    if signature.settings.streams:
        parameters.setdefault(MAX_STREAMS, {"string_value": str(signature.settings.streams)})
    if signature.is_async and not signature.is_stream:
        parameters.setdefault("MAX_INFLIGHT", {"string_value": _OVERLAPPING})


def _openai(signature: Signature) -> Dict[str, str]:
    """Return the configuration's parameters for OpenAI's routes: the names of input and output.

    The input is `messages`, or the only text or sound without a default. Returns {} if the routes
    cannot call the function.
    """
    needed = [each for each in signature.parameters if not each.is_optional]
    chats = [each for each in needed if each.name == _CHAT and _openai_kind(each) == _CHAT]
    inputs = chats or [each for each in needed if _openai_kind(each) in (_TEXT, _SOUND)]
    outputs = [each for each in signature.outputs if each.name not in _ABOUT_TEXT]
    kinds = (_TEXT, _SOUND, *[_MESSAGE][: len(chats)])
    if not (len(inputs) == len(outputs) == 1 and _openai_kind(outputs[0]) in kinds):
        return {}
    rows = ((inputs[0], "input"), (outputs[0], "output"))
    return {f"openai_{_openai_kind(row)}_{end}": row.name for row, end in rows}


def _openai_kind(row: Parameter) -> str:
    """Return the use of a value in OpenAI's routes, such as "text"; "" if it has none."""
    schema = row.kind.schema
    if schema.get(CONTENT) == JSON:
        return _CHAT if schema.get("type") == "array" else _MESSAGE
    if schema.get(CONTENT) == Audio.content_type:
        return _SOUND
    is_text = type(row.kind) is Scalars and row.kind.python is str and not row.kind.depth
    return _TEXT if is_text else ""


def describe(signature: Signature) -> Dict[str, Any]:
    """Return the description of a function that the server reads, as a JSON object.

    Raises HintError for examples that the function refuses.
    """
    fields_of, examples = signature.fields_of, _examples(signature)
    is_tuple = fields_of is not None and issubclass(fields_of, tuple)
    return {
        "about": signature.about,
        "tuple": fields_of.__name__ if is_tuple else "",
        "has_batches": signature.settings.batch > 0,
        "is_stream": signature.is_stream,
        "is_checked": signature.is_checked,
        **({"examples": examples} if examples else {}),
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
    """Return the schema of an argument, with its default if JSON can express it."""
    default, schema = parameter.default, parameter.kind.schema
    has_no_json = parameter.kind.is_file and default is not None
    if has_no_json or not parameter.is_optional:
        return schema
    try:
        text = write(default)
    except (TypeError, ValueError):  # a list of pictures
        return schema
    return {**schema, "default": json.loads(text)} if len(text) <= _MAX_DEFAULT else schema


def _tensors(rows: Sequence[Parameter], *, are_inputs: bool) -> Iterator[Dict[str, Any]]:
    """Yield the tensors of parameters or outputs as entries of a configuration."""
    for row in rows:
        tensors = [(row.name, row.kind.datatype, row.kind.dims, row.is_optional)]
        if row.ragged is not None:
            tensors.append((row.name + RAGGED, "TYPE_STRING", [1], True))
        for name, datatype, dims, is_optional in tensors:
            optional = {"optional": True} if are_inputs and is_optional else {}
            yield {"name": name, "data_type": datatype, "dims": dims, **optional}


def functions_of(module: Any) -> Iterator[Any]:
    """Iterate over the functions and classes of a module that have `@model`."""
    for value in vars(module).values():
        if MARK in getattr(value, "__dict__", {}) and value.__module__ == module.__name__:
            yield value
