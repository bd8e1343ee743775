"""The calls that clients make of a server, and what both protocols share of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from zmqtriton_floor import tensors
from zmqtriton_floor.datatypes import BY_NAME, DATATYPES, Datatype

T = TypeVar("T")

Array = np.ndarray[Any, Any]
Data = bytes | memoryview
Parameter = str | int | bool
Headers = Mapping[str, str]

_RESERVED_PARAMETERS = frozenset(
    (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    )
)
_RESERVED_PREFIX = "triton_"


class ServerError(Exception):
    """Raised if the server refuses a call; its text is the server's."""


class Inference(NamedTuple):
    """A request to a model."""

    model_name: str
    #: "" for the latest that the model serves.
    model_version: str
    id: str
    inputs: Mapping[str, Array]
    #: By name; none for all.
    outputs: Sequence[str]
    parameters: Mapping[str, Parameter]


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request of one protocol, and the way to read its answer."""

    request: Any
    read: Callable[[Any], T]


class Calls(Protocol):
    """The calls, as one protocol has them."""

    def server_live(self) -> Call[bool]: ...

    def server_ready(self) -> Call[bool]: ...

    def model_ready(self, name: str, version: str) -> Call[bool]: ...

    def model_config(self, name: str, version: str) -> Call[dict[str, Any]]: ...

    def repository_index(self) -> Call[list[dict[str, str]]]: ...

    def load_model(
        self, name: str, config: str | None, files: Mapping[str, bytes]
    ) -> Call[None]: ...

    def unload_model(self, name: str) -> Call[None]: ...

    def infer(self, inference: Inference) -> Call[dict[str, Array]]: ...

    def stream_infer(self, inference: Inference) -> Call[dict[str, Array]]:
        """Make a call that is answered any number of times."""


def check_parameters(parameters: Mapping[str, Parameter]) -> None:
    """Refuse names that mean something to the server, as Triton's own clients do."""
    for name in parameters:
        if name in _RESERVED_PARAMETERS or name.startswith(_RESERVED_PREFIX):
            raise ServerError(
                f'Parameter "{name}" is a reserved parameter and cannot be specified.'
            )


#: numpy knows these by the library alone that brings them.
_BY_LIBRARY_NAME = {d.library_name: d.name for d in DATATYPES if d.library_name}


def datatype_name(array: Array) -> str:
    """Return the protocol's name of an array's datatype. Raises KeyError without one."""
    return _BY_LIBRARY_NAME.get(array.dtype.name) or tensors.datatype_of(array).name


def to_data(array: Array) -> Data:
    return tensors.from_numpy(array)


def to_array(datatype: str, shape: Sequence[int], data: Data) -> Array:
    """Return a tensor that the caller may write to.

    What numpy lacks is as it is where a library has taught numpy the type, and else its bits.
    """
    row = BY_NAME[datatype]
    if not row.numpy_name:
        return np.frombuffer(bytearray(data), dtype=_library_type(row)).reshape(shape)
    array: Array = tensors.to_numpy(row.number, shape, data)
    return array


def _library_type(row: Datatype) -> Any:
    try:
        return np.dtype(row.library_name)
    except TypeError:
        return np.dtype(row.numpy_bits)
