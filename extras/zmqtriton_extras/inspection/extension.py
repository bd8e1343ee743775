"""POST /v2/models/MODEL/profile: a profile of a model over HTTP, as a file; and its figures.

Clients that may restart a model may profile it: the route has the category of operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpExtension,
    HttpRequest,
    JsonSchema,
    Operation,
    Route,
    RouteDescriptions,
    Threads,
    json_documents,
)
from zmqtriton.sdk.wire import InvalidArgument, wire
from zmqtriton_extras.inspection.figures import figures_of
from zmqtriton_standard.cockpit import operations

_threads = Threads("profiles", 2, 16)
_SETTINGS = {
    "seconds": {"type": "number", "exclusiveMinimum": 0},
    "instance": JsonSchema.STRING,
    "request": JsonSchema.STRING,
    "form": {"type": "string", "enum": ["svg", "speedscope", "pprof"]},
}
_FIGURE = {
    "name": JsonSchema.STRING,
    "description": JsonSchema.STRING,
    "kind": {"type": "string", "enum": ["counter", "gauge", "histogram"]},
    "labels": {"type": "object", "additionalProperties": JsonSchema.STRING},
    "value": {"type": "number"},
    "count": {"type": "integer"},
}
_REFUSAL = (
    "clients may profile models with --model-control-mode=explicit, or if a key or a token guards "
    f"it: --http-restricted-api={operations.CATEGORY}:KEY=VALUE, --tokens=FILE"
)


class Profiling:
    """The responder of profiles."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def profile(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        body = await req.read_control()
        if not operations.is_open(self._gateway):
            raise falcon.HTTPForbidden(description=_REFUSAL)
        # only now: most servers are never asked
        from zmqtriton_extras.inspection.files import BY_FORM
        from zmqtriton_extras.inspection.profile import read

        document = json_documents.parse(body) if body else {}
        if type(document) is not dict:
            raise InvalidArgument("the body must be a JSON object")
        form = document.pop("form", "svg")
        if type(form) is not str or form not in BY_FORM:
            raise InvalidArgument(f"form must be one of {', '.join(BY_FORM)}")
        file = BY_FORM[form]
        answer = await self._gateway.call("profile", {**document, "model": model})
        # of many stacks it may take a while
        resp.data = await _threads.run(lambda: file.write(read(answer).without_directories()))
        resp.content_type = file.media
        resp.set_header("Content-Disposition", f'attachment; filename="profile{file.end}"')


class Figures:
    """The responder of figures."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def figures(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        self._gateway.catalogue.check_counted(model, "")
        answer = await self._gateway.statistics(model, kind=wire.PAGE)
        rows = [*figures_of(model, answer.get("measures", ()))]
        resp.data = json_documents.write({"figures": rows})


def _routes(gateway: Gateway) -> Sequence[Route]:
    profile, general = Profiling(gateway).profile, "model-repository"
    model = "/v2/models/{model:name}"
    return [
        Route("POST", f"{model}/profile", operations.CATEGORY, profile, general),
        Route("GET", f"{model}/figures", "statistics", Figures(gateway).figures),
    ]


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    summary = "Where a model spends its time: a flame graph (SVG), or a file for other programs"
    operation = Operation(summary, "ProfileRequest", media="image/svg+xml", is_body_required=False)
    schemas = {
        "ProfileRequest": JsonSchema.object_of(_SETTINGS),
        "Figures": JsonSchema.object_of(
            {"figures": {"type": "array", "items": JsonSchema.object_of(_FIGURE)}}
        ),
    }
    described = {
        "Profiling.profile": operation,
        "Figures.figures": Operation(
            "The metrics that a model reports of itself",
            response="Figures",
            media="application/json",
        ),
    }
    return RouteDescriptions(described, schemas=schemas)


EXTENSION = HttpExtension(routes=_routes, descriptions=_descriptions)
