"""The steps of a program: what one request to a model does.

Also part of each model. `steps_of` is a generator that computes with numpy alone and yields
whatever needs a server: the oracle and the models each perform that in their own way.

    ["slice", TO, FROM, BEGIN, END, STRIDE]   sixteenths; a view
    ["turn", TO, FROM, ROWS]                  transposed, and flat again
    ["copy", TO, FROM]    ["add", TO, ONE, OTHER]
    ["mark", NAME, NUMBER]                    in place
    ["dlpack", TO, FROM]                      through Tensor.to_dlpack and from_dlpack
    ["empty", TO, FROM]                       a copy in Tensor.empty
    ["call", [TO, ...], MODE, [[MODEL, [FROM, ...]], ...]]   other models, with one array or several
    ["keep", NAME, WHERE]                     over later requests: "global", "self", "thread"
    ["pause", MILLISECONDS]                   so that others can go on
    ["state", NAME]                           of a sequence, for its next request
    ["send", [NAME, ...]]                     a response
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from arrays import mark  # type: ignore[import-not-found]  # in a model's directory

Arrays = list[Any]


class Call(NamedTuple):
    """Calls of other models, to be made together. The result is for each its responses."""

    mode: str
    models: list[str]
    inputs: list[Arrays]


class Keep(NamedTuple):
    """An array to hold until later requests."""

    array: Any
    where: str


class Pass(NamedTuple):
    """An array to pass through DLPack. The result has the same memory."""

    array: Any


class Fill(NamedTuple):
    """An array to copy into Tensor.empty. The result is the copy."""

    array: Any


class Pause(NamedTuple):
    """Milliseconds without work."""

    milliseconds: int


class State(NamedTuple):
    """The state of a sequence after this request."""

    array: Any


class Send(NamedTuple):
    """A response."""

    arrays: Arrays


Effect = Any
Steps = Generator[Effect, Any, None]


def steps_of(steps: Sequence[Sequence[Any]], inputs: Arrays, state: Any = None) -> Steps:
    """Perform the steps of a request on its inputs, which are named i0, i1 and so on.

    The state of its sequence is named s.
    """
    names: dict[str, Any] = {f"i{number}": array for number, array in enumerate(inputs)}
    names["s"] = state
    for kind, to, *rest in steps:
        if kind == "call":
            mode, calls = rest
            answers = yield Call(
                mode, [c[0] for c in calls], [[names[n] for n in c[1]] for c in calls]
            )
            arrays = [
                array for responses in answers for response in responses for array in response
            ]
            names.update(zip(to, arrays))
        elif kind == "keep":
            yield Keep(names[to], rest[0])
        elif kind == "pause":
            yield Pause(to)
        elif kind == "state":
            yield State(names[to])
        elif kind == "dlpack":
            names[to] = yield Pass(names[rest[0]])
        elif kind == "empty":
            names[to] = yield Fill(names[rest[0]])
        elif kind == "send":
            yield Send([names[name] for name in to])
        elif kind == "mark":
            mark(names[to], rest[0])
        else:
            names[to] = _computed(kind, names, *rest)


def _computed(kind: str, names: dict[str, Any], source: str, *rest: Any) -> Any:
    array = names[source]
    if kind == "slice":
        begin, end, stride = rest
        return array[len(array) * begin // 16 : len(array) * end // 16][::stride]
    if kind == "turn":
        whole = len(array) // rest[0] * rest[0]
        return array[:whole].reshape(rest[0], -1).T.reshape(-1)
    if kind == "copy":
        return array.copy()
    if kind == "add":
        other = names[rest[0]]
        count = min(len(array), len(other))
        return array[:count] + other[:count]
    raise ValueError(kind)
