"""Requests and responses of inference callables, and names for annotations."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from zmqtriton_extras.pytriton.proxy.telemetry import traced_span


@dataclass
class _NamedArrays(MutableMapping[str, np.ndarray]):
    """A mapping of names to arrays; changes in it are changes in `data`."""

    data: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[name]

    def __setitem__(self, name: str, array: np.ndarray) -> None:
        self.data[name] = array

    def __delitem__(self, name: str) -> None:
        del self.data[name]

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def keys(self) -> KeysView[str]:
        return self.data.keys()

    def values(self) -> ValuesView[np.ndarray]:
        return self.data.values()

    def items(self) -> ItemsView[str, np.ndarray]:
        return self.data.items()


@dataclass
class Request(_NamedArrays):
    """The inputs of a request, by their names."""

    #: Parameters of the request, and headers that are forwarded.
    parameters: dict[str, str | int | bool] | None = None
    #: OpenTelemetry's, if the request is traced.
    span: Any = None
    requested_output_names: list[str] | None = None

    def traced_span(self, span_name: str) -> AbstractContextManager[None]:
        """Return a context that is a span of this request's trace, if it has one."""
        return traced_span(self, span_name)


@dataclass
class Response(_NamedArrays):
    """The outputs for a request, by their names; a callable may return it in place of a dict."""


Requests = list[Request]
Responses = list[Response]
ResponsesOrError = Responses | Exception
ResponsesNoneOrError = Responses | Exception | None
Scope = dict[str, Any]
