"""A server that clients may ask, as its starter in this process sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class OpenedServer(NamedTuple):
    #: None if it has no HTTP.
    http_port: int | None
    #: Returns the configuration of a serving version of a model, -1 for the highest; or nothing.
    serving_config: Callable[[str, int], dict[str, Any]]
