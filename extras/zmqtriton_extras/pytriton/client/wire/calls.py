"""The calls that clients make to a server, and what both protocols have in common.

The address of the server, and the time that a client waits for the responses of a stream.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args

import numpy as np

from zmqtriton.sdk.wire import datatypes, tensors
from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientInvalidUrlError
from zmqtriton_extras.pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT

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
#: Scope of a timeout: none, each response, or all of them together.
TimeoutScope = Literal["none", "response", "stream"]
TIMEOUT_SCOPES: tuple[TimeoutScope, ...] = get_args(TimeoutScope)
_PORTS = {"http": DEFAULT_HTTP_PORT, "grpc": DEFAULT_GRPC_PORT}


@dataclass
class TritonUrl:
    """A server's protocol, host and port."""

    scheme: str
    hostname: str
    port: int

    @classmethod
    def from_url(cls, url: Any) -> TritonUrl:
        """Parse a URL; without a scheme it is HTTP's, without a port Triton's own.

        Raises PyTritonClientInvalidUrlError.
        """
        if not isinstance(url, str):
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}. Url must be a string.")
        try:
            # Not urlparse's scheme: it takes the host of `localhost:8000` for one.
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}") from error
        if parts.scheme not in _PORTS or not parts.hostname:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}")
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])

    @property
    def with_scheme(self) -> str:
        return f"{self.scheme}://{self.without_scheme}"

    @property
    def without_scheme(self) -> str:
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{host}:{self.port}"


class StreamTimeout(NamedTuple):
    """A timeout, and its scope."""

    seconds: float
    scope: TimeoutScope

    def begin(self, clock: Callable[[], float] = time.monotonic) -> Callable[[], float | None]:
        """Start a stream; return a function that returns the seconds to wait for its next response.

        None is for ever. The function raises TimeoutError when the stream may take no longer.
        """
        deadline_s = clock() + self.seconds

        def left_s() -> float | None:
            if self.scope != "stream":
                return self.seconds if self.scope == "response" else None
            if (left := deadline_s - clock()) > 0:
                return left
            raise TimeoutError(f"the stream did not end within {self.seconds:g} s")

        return left_s


class ServerError(Exception):
    """Raised if the server refuses a call; its text is the server's."""


class Inference(NamedTuple):
    """A request to a model."""

    model_name: str
    #: "" for the latest that the model serves.
    model_version: str
    id: str
    inputs: Mapping[str, Array]
    #: Names of the outputs; none for all.
    outputs: Sequence[str]
    parameters: Mapping[str, Parameter]


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request in one protocol, and the function that reads its answer."""

    request: Any
    read: Callable[[Any], T]


class Calls(Protocol):
    """The calls in one protocol."""

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
        """Make a call that has any number of responses."""


def check_parameters(parameters: Mapping[str, Parameter]) -> None:
    """Refuse names that the server reserves, as Triton's own clients do."""
    for name in parameters:
        if name in _RESERVED_PARAMETERS or name.startswith(_RESERVED_PREFIX):
            raise ServerError(
                f'Parameter "{name}" is a reserved parameter and cannot be specified.'
            )


#: Data types that numpy knows only with the library that defines them.
_BY_LIBRARY_NAME = {d.library_name: d.name for d in datatypes.BY_NAME.values() if d.library_name}


def datatype_name(array: Array) -> str:
    """Return the protocol's name of an array's datatype. Raises KeyError without one."""
    return _BY_LIBRARY_NAME.get(array.dtype.name) or tensors.datatype_of(array).name


def to_data(array: Array) -> Data:
    return tensors.from_numpy(array)


def to_array(datatype: str, shape: Sequence[int], data: Data) -> Array:
    """Return a tensor that the caller may write to.

    If numpy lacks the datatype, the array has a type that a library has added, or else the bits.
    """
    row = datatypes.BY_NAME[datatype]
    if not row.numpy_name:
        return np.frombuffer(bytearray(data), dtype=_library_type(row)).reshape(shape)
    array: Array = tensors.to_numpy(row.number, shape, data)
    return array


def _library_type(row: datatypes.Datatype) -> Any:
    try:
        return np.dtype(row.library_name)
    except TypeError:
        return np.dtype(row.numpy_bits)
