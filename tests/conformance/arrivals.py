"""Arrivals under which the configuration alone decides which batches form, not the clock.

A request called `hold…` keeps its instance until it is let go, while others come to wait behind it
in a known order. Used by batches.py, which plays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: The columns of one request; with more of them its shape differs from others.
ONE = 1


class Ask(NamedTuple):
    """A request; sequence 0 is none."""

    name: str
    rows: int = 1
    columns: int = ONE
    priority: int = 0
    sequence: int = 0
    is_first: bool = False
    is_last: bool = False
    has_option: bool = False
    #: The model, if it is not the one of the configuration.
    model: str = ""


class Send(NamedTuple):
    """Requests that come one after the other; the next step begins when all are in a queue."""

    asks: Sequence[Ask]


class Begun(NamedTuple):
    """Waits until a model has begun so many batches; without a name the configuration's own."""

    batches: int
    model: str = ""


class Answered(NamedTuple):
    """Waits until so many requests are answered."""

    number: int


class Go(NamedTuple):
    """Lets the instance go that a request holds."""

    name: str = "hold"
    model: str = ""


class Pause(NamedTuple):
    """Time for what only time brings: a timeout that passes."""

    seconds: float


Step = Send | Begun | Answered | Go | Pause


class Configuration(NamedTuple):
    """A model under its name, those that it needs, and what is asked of it."""

    name: str
    config: str
    steps: Sequence[Step]
    others: Sequence[tuple[str, str]] = ()
    #: Each request comes on a stream of its own: on one stream Triton answers in order.
    has_streams: bool = False

    @property
    def models(self) -> Sequence[tuple[str, str]]:
        return [(self.name, self.config), *self.others]


def asks(words: str, **fields: object) -> list[Ask]:
    """`a b*3 c:2 d+`: 3 rows, priority 2, and with the optional input."""
    asks = []
    for word in words.split():
        name, _, priority = word.rstrip("+").partition(":")
        name, _, rows = name.partition("*")
        ask = Ask(name, int(rows or 1), priority=int(priority or 0), has_option=word.endswith("+"))
        asks.append(ask._replace(**fields))  # type: ignore[arg-type]
    return asks


def turns(words: str) -> list[Ask]:
    """`(1a 1b 1c)`: requests of sequence 1, of which the first begins it and the last ends it."""
    asks = []
    for word in words.split():
        name = word.strip("()")
        asks.append(Ask(name, sequence=int(name[-2]), is_first="(" in word, is_last=")" in word))
    return asks


def behind(waiting: Sequence[Ask], hold: str = "hold") -> list[Step]:
    """All of them wait behind one that holds the only instance."""
    return [Send(asks(hold)), Begun(1), Send(waiting), Go(hold)]


def late(waiting: Sequence[Ask]) -> list[Step]:
    """The same, until they have waited longer than a queue may delay them."""
    return [Send(asks("hold")), Begun(1), Send(waiting), Pause(1.2), Go()]


def idle(coming: Sequence[Ask]) -> list[Step]:
    """They come while nothing is executed."""
    return [Send(coming)]


def batching(text: str = "", largest: int = 8, count: int = 1, more: str = "") -> str:
    return (
        f"max_batch_size: {largest}\n{inputs()}dynamic_batching {{ {text} }}\n{group(count)}{more}"
    )


def sequences(text: str, largest: int = 4, count: int = 1, more: str = "") -> str:
    controls = """control_input [
  { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } },
  { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } } ]"""
    idle_us = "max_sequence_idle_microseconds: 60000000"
    return (
        f"max_batch_size: {largest}\n{inputs()}"
        f"sequence_batching {{ {idle_us} {controls} {text} }}\n{group(count)}{more}"
    )


def inputs(dims: str = "1", more: str = "") -> str:
    rows = f'{{ name: "IN" data_type: TYPE_INT32 dims: [ {dims} ] {more} }}'
    option = '{ name: "OPTION" data_type: TYPE_INT32 dims: [ 1 ] optional: true }'
    out = '{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }'
    return f"input [ {rows}, {option} ]\noutput [ {out} ]\n"


def group(count: int = 1) -> str:
    return f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n"


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def ensemble(members: Sequence[str], largest: int = 8) -> str:
    """A chain of them."""
    names = ["IN", *[f"T{number}" for number in range(1, len(members))], "OUT"]
    steps = ", ".join(
        f'{{ model_name: "{member}" model_version: -1 '
        f'input_map {{ key: "IN" value: "{names[number]}" }} '
        f'output_map {{ key: "OUT" value: "{names[number + 1]}" }} }}'
        for number, member in enumerate(members)
    )
    return f"""platform: "ensemble"
max_batch_size: {largest}
input [ {{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }} ]
ensemble_scheduling {{ step [ {steps} ] }}
"""
