"""The additions of an add-on to the HTTP frontend: routes, and the form of errors below one path.

An add-on declares an `HttpExtension`. Its routes are made once in each process, when that has the
server's settings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.route import Route


class ErrorForm(Protocol):
    """The form of errors; each method returns the status and the body."""

    def of_error(self, error: ZmqTritonError) -> tuple[int, bytes]: ...

    def of_refusal(self, status: int, text: str) -> tuple[int, bytes]: ...


class HttpExtension(NamedTuple):
    routes: Callable[[Gateway], Sequence[Route]]
    #: The beginning of the paths whose errors have a form of their own.
    prefix: str = ""
    error_form: ErrorForm | None = None


def extensions(gateway: Gateway) -> list[HttpExtension]:
    """Return those of all add-ons that this server has, in their order."""
    return [_load(reference) for reference in gateway.settings.http.addons]


def _load(reference: str) -> HttpExtension:
    module, _, name = reference.partition(":")
    extension: HttpExtension = getattr(importlib.import_module(module), name)
    return extension
