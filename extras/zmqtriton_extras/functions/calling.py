"""Calls a served function like a local one: `zmqtriton.connect().caption(image="cat.jpg")`."""

from __future__ import annotations

import inspect
import os
from collections import namedtuple
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zmqtriton.sdk.process import InferenceResponse, Model
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.functions.backend.kinds import Kind
from zmqtriton_extras.functions.backend.media import Media, MediaKind, Several, said_of
from zmqtriton_extras.functions.backend.signature import OUTPUT
from zmqtriton_extras.functions.interface import Interface, interface_of


class Call:
    """A callable that sends its arguments to a served function.

    For an image, sound or file, pass the object or a path.
    """

    def __init__(self, model: Model, interface: Interface) -> None:
        self._model, self._interface = model, interface
        self.__name__, self.__doc__ = model.name, interface.about
        rows = interface.input["properties"].items()
        parameters = [self._parameter(name, schema) for name, schema in rows]
        parameters.sort(key=lambda each: each.default is not each.empty)
        self.__signature__ = inspect.Signature(parameters)
        outputs = interface.output["properties"]
        self._record: Any = namedtuple(interface.tuple, outputs) if interface.tuple else dict

    def _parameter(self, name: str, schema: Mapping[str, Any]) -> inspect.Parameter:
        is_required = name in self._interface.input["required"]
        default = inspect.Parameter.empty if is_required else schema.get("default")
        hint = self._interface.parameters[name].expected
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(name, kind, default=default, annotation=hint)

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call the function. Returns its result, or an iterator if it streams.

        Several outputs are a named tuple or a dict, as the function returns them.
        """
        bound = self.__signature__.bind(*values, **named).arguments
        kinds = self._interface.parameters
        arguments = {n: _value(kinds[n], v) for n, v in bound.items()}
        request = self._interface.encode(arguments)
        files = [row for name, value in arguments.items() for row in _files(name, value)]
        more = {**request.parameters, **said_of(files)}
        responses = self._model.infer(inputs=request.inputs, parameters=more)
        if not self._interface.is_stream:
            return self._answer(next(responses))
        # the end of a stream has no answer; an answer of None alone is one without outputs
        return (self._answer(each) for each in responses if each.error or not each.final)

    def _answer(self, response: InferenceResponse) -> Any:
        if response.error is not None:
            raise response.error
        values = self._interface.decode(response.outputs)
        return values[OUTPUT] if [*values] == [OUTPUT] else self._record(**values)


def _value(kind: Kind, value: Any) -> Any:
    """Read a path, or wrap bytes, if the parameter is a file; return any other value unchanged."""
    if isinstance(kind, Several) and isinstance(value, list | tuple):
        return [_value(kind.inner, each) for each in value]
    if not isinstance(kind, MediaKind):
        return value
    if isinstance(value, str | os.PathLike):
        path = Path(value)
        return kind.media(path.read_bytes(), path.name)
    return kind.media(value) if type(value) is bytes else value


def _files(place: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the place, name and content type of each file in a value."""
    if isinstance(value, Media):
        yield place, value.name, value.content_type
    for n, each in enumerate(value) if isinstance(value, list) else ():
        yield from _files(f"{place}.{n}", each)


def call_of(model: Model) -> Call | None:
    """Return the callable for a model; None if the model is not a function."""
    try:
        interface = interface_of(model.config())
    except ZmqTritonError:
        return None
    return Call(model, interface) if interface is not None else None
