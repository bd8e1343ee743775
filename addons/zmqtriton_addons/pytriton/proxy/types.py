"""A request as the inference callable gets it."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from zmqtriton_addons.pytriton.proxy.telemetry import traced_span


@dataclass
class Request(MutableMapping[str, np.ndarray]):
    """A mapping of input names to arrays; changes in it are changes in `data`."""

    data: dict[str, np.ndarray]
    #: Parameters of the request, and headers that are forwarded.
    parameters: dict[str, str | int | bool] | None = None
    #: OpenTelemetry's, if the request is traced.
    span: Any = None
    requested_output_names: list[str] | None = None

    def __getitem__(self, input_name: str) -> np.ndarray:
        return self.data[input_name]

    def __setitem__(self, input_name: str, input_data: np.ndarray) -> None:
        self.data[input_name] = input_data

    def __delitem__(self, input_name: str) -> None:
        del self.data[input_name]

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

    def traced_span(self, span_name: str) -> AbstractContextManager[None]:
        """Return a context that is a span of this request's trace, if it has one."""
        return traced_span(self, span_name)


Requests = list[Request]
