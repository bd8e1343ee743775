"""The additions of an add-on to the HTTP frontend: routes, and a form of errors.

An add-on declares an `HttpExtension`. Its routes are made once in each process, once the process
has the server's settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.access import AccessRules, Route
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.process.ledger import Application


class JsonSchema:
    """JSON schemas of the bodies and parameters of routes."""

    STRING: Final = {"type": "string"}
    BOOLEAN: Final = {"type": "boolean"}
    COUNT: Final = {"type": "integer", "minimum": 0}

    @staticmethod
    def object_of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = list(required)
        return schema

    @staticmethod
    def array_of(items: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "items": items}

    @staticmethod
    def named(name: str) -> dict[str, str]:
        return {"$ref": f"#/components/schemas/{name}"}


#: Makes an example of a responder's body; None for a model that is not for it.
Example = Callable[[ModelVersion], dict[str, Any] | None]


class Operation(NamedTuple):
    summary: str
    #: Names of the schemas of the two bodies.
    request: str = ""
    response: str = ""
    #: Media type of the answer; empty if that has no body.
    media: str = ""
    is_body_required: bool = True
    #: Parameters of the operation behind the path, with their schemas.
    query: Mapping[str, dict[str, Any]] = MappingProxyType({})


class RouteDescriptions(NamedTuple):
    """The description of the routes of an extension."""

    #: Operations by the qualified names of their responders.
    operations: Mapping[str, Operation] = MappingProxyType({})
    #: Examples of bodies by the same names; they decide by themselves about models that answer any
    #: number of times.
    examples: Mapping[str, Example] = MappingProxyType({})
    schemas: Mapping[str, Any] = MappingProxyType({})
    #: The schema of errors.
    error: str = "Error"


class ErrorForm(Protocol):
    """The form of errors; each method returns the status and the body."""

    def of_error(self, error: ZmqTritonError) -> tuple[int, bytes]: ...

    def of_refusal(self, status: int, text: str) -> tuple[int, bytes]: ...


class EndpointParts(NamedTuple):
    """The parts of the server that an add-on builds the endpoint of its own port with."""

    gateway: Gateway
    #: The application of the main endpoint.
    application: Application
    access: AccessRules
    #: Makes an application of routes that only this endpoint has.
    build: Callable[[Sequence[Route]], Application]


def _nothing(*parts: Any) -> tuple[Any, ...]:
    return ()


class HttpExtension(NamedTuple):
    routes: Callable[[Gateway], Sequence[Route]] = _nothing
    #: The beginning of the paths whose errors have a form of their own.
    prefix: str = ""
    error_form: ErrorForm | None = None
    #: Makes the parts of /openapi.json about the routes that this server has.
    descriptions: Callable[[Gateway], RouteDescriptions] = lambda _: RouteDescriptions()
    #: Returns the routes so far with other responders in them, or nothing for the same.
    around: Callable[[Gateway, list[Route]], Sequence[Route]] = _nothing
    #: Names of headers in lower case: an inference with one of them has the responder of that
    #: table.
    headers: Callable[[Gateway], tuple[bytes, ...]] = _nothing
    #: Changes what /openapi.json says to the client of a request.
    describe: Callable[[Gateway, HttpRequest, dict[str, Any]], Awaitable[None]] | None = None

    @staticmethod
    def all_of(gateway: Gateway) -> list[HttpExtension]:
        """Return the extensions of all add-ons that this server has, in their order."""
        return EXTENSION.all_of(gateway.settings.offers)


#: HTTP routes, and how errors below their path are written.
EXTENSION = Hook[HttpExtension]("http.extension")
