"""The names that users import from `zmqtriton` to write functions as models.

@model(batch=16)
def score(text: list[str], limit: int = 20) -> list[float]: ...

@model(streams=64)
class Chat:
    def admit(self, prompt: str, max_tokens: int = 256) -> State: ...
    def step(self, states: list[State]) -> list[str | None]: ...
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from zmqtriton_extras.functions.backend.keeping import kept
from zmqtriton_extras.functions.backend.media import Audio, File, Image
from zmqtriton_extras.functions.backend.names import model_name
from zmqtriton_floor.sdk import documents

__all__ = ["Array", "Audio", "End", "Failed", "File", "Full", "Image", "Refused", "kept", "model"]

#: The attribute with the Settings of a function or class that has `@model`.
MARK = "__zmqtriton_model__"


class Settings(NamedTuple):
    """The arguments of `@model`."""

    name: str
    #: Maximum number of entries in a batch; 0: each request is a call.
    batch: int
    delay_ms: float
    instances: int
    #: Maximum number of streams in a step; 0 if it is not a class with `admit` and `step`.
    streams: int = 0
    #: Maximum cost of a call, or of all open streams together. 0: no limit.
    budget: float = 0
    #: Cost of an entry: a function, or a measure such as "bytes(text)"; of a stream it is the
    #: method `cost`.
    cost: Any = ""
    #: Measure of the entries that should be alike in a batch, such as "shape(text)".
    like: str = ""
    #: Maximum bytes of a JSON argument, such as a dict or a dataclass.
    json_bytes: int = documents.LIMITS.bytes
    #: True if `__init__` runs once, before instances are forked; None: if instances are forks.
    keeps: bool | None = None
    #: Arguments of requests that the function's page offers.
    examples: Sequence[Mapping[str, Any]] = ()
    #: "auto": the server chooses delay and size of batches, for the target.
    delay: str = ""
    target: str = ""


def model(
    function: Any = None,
    *,
    name: str = "",
    batch: int = 0,
    delay_ms: float = 0,
    instances: int = 1,
    streams: int = 0,
    budget: float = 0,
    cost: Any = "",
    like: str = "",
    json_bytes: int = documents.LIMITS.bytes,
    keeps: bool | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
    delay: str = "",
    target: str = "",
) -> Any:
    """Mark a function or a class as a model, and return it unchanged.

    Of a class, the server creates an instance and calls it for each request. With `keeps=True` its
    `__init__` runs once for all instances, and its objects stay after a change of other code.
    `examples` are arguments as JSON; a pathlib.Path is the content of its file.
    """
    faults = (
        (
            batch < 0 or delay_ms < 0 or instances < 1,
            "batch and delay_ms must be 0 or more, and instances 1 or more",
        ),
        (
            streams < 0 or not 0 <= budget < math.inf or (streams and batch),
            "streams must be 1 or more, without batch, and budget a number from 0 on",
        ),
        (not isinstance(like, str), 'like must be a measure, such as like="shape(text)"'),
        ((cost or like) and not batch, "cost and like are for functions with batch"),
        (
            budget and not streams if not cost else not budget,
            "cost needs a budget, and budget a cost: budget=4096, cost=len",
        ),
        (json_bytes < 1, "json_bytes must be 1 or more"),
        (
            delay not in ("", "auto") or (delay and (delay_ms or not batch)),
            'delay must be "auto", with batch and without delay_ms',
        ),
        (target and not delay, 'target needs delay="auto"'),
    )
    for is_there, text in faults:
        if is_there:
            raise ValueError(f"@model: {text}")

    def mark(marked: Any) -> Any:
        own_name = name or model_name(marked.__name__)
        batching = (budget, cost, like)
        rest = (instances, streams, *batching, json_bytes, keeps, examples, delay, target)
        setattr(marked, MARK, Settings(own_name, batch, delay_ms, *rest))
        return marked

    return mark if function is None else mark(function)


class Failed(Exception):
    """Fails a request with a text: raise it, or return it instead of an entry of a batch.

    If a function returns Failed("no face") instead of an entry, only the request of this entry
    fails. If it raises Failed(3, "no face"), only the request of entry 3 fails, counted from 0.
    """

    def __init__(self, entry: Any, text: Any = None) -> None:
        super().__init__(entry, text)
        self.entry: int = -1 if text is None else entry
        self.text = str(entry if text is None else text)

    def __str__(self) -> str:
        return self.text


class End:
    """Ends a stream: `step` returns End(value) with a last result, or End() without one."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Full(Exception):
    """Makes a request wait until another stream has ended: raise it in `admit`."""


class Refused(Exception):
    """Refuses a request with a text, and with an HTTP status from 400 to 599: raise it.

    Raised in a batch, it refuses all requests of the call. Returned instead of an entry, it refuses
    the request of this entry. The default status is 422 for plain JSON, and 400 for tensors.
    """

    def __init__(self, text: str, *, status: int = 0) -> None:
        super().__init__(text)
        if status and not 400 <= status <= 599:
            raise ValueError(f"the status of a Refused must be 400 to 599, not {status}")
        self.status = status


class Array:
    """A hint for arrays: `Array["FP32", -1, 224]`, or `Array["FP32"]` for one dimension."""

    datatype: str = "FP32"
    dims: tuple[int, ...] = (-1,)

    def __class_getitem__(cls, parameters: Any) -> Any:
        datatype, *dims = parameters if isinstance(parameters, tuple) else (parameters,)
        # a class, since the typing module of some Pythons takes nothing else
        return type("Array", (Array,), {"datatype": datatype, "dims": tuple(dims) or (-1,)})


#: A function that is called with values by the names of its parameters.
Function = Callable[..., Any]
