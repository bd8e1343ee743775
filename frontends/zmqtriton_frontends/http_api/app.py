"""The table of routes, and the Falcon application that it becomes.

Every route has a category, which an operator may restrict; the pages have none. All errors leave
here as `{"error": text}`. There are no middleware and no media handlers: they would slow down each
inference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import falcon
import falcon.asgi
import falcon.routing
import orjson

from zmqtriton_floor.descriptions import clipped
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.administration import (
    RepositoryResponders,
    SettingsResponders,
    shared_memory_routes,
)
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.asgi.access import AccessRules, Route
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.extension import ErrorForm, HttpExtension
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.inference.asgi_inference import AsgiInferences
from zmqtriton_frontends.http_api.inference.infer import Inference
from zmqtriton_frontends.http_api.metadata import Metadata
from zmqtriton_frontends.http_api.server.inference_heads import (
    MAX_MODEL_NAME_BYTES,
    InferenceHeads,
)

#: The statuses of refusals that are no AccessRefused: a key, a page or a host name.
_REFUSALS = frozenset({403, 421})


def routes(gateway: Gateway) -> list[Route]:
    inference, metadata, repository = (
        Inference(gateway),
        Metadata(gateway),
        RepositoryResponders(gateway),
    )
    settings = SettingsResponders(gateway)
    fixed = [
        Route("GET", "/v2/health/live", "health", metadata.live),
        Route("GET", "/v2/health/ready", "health", metadata.ready),
        Route("GET", "/v2", "metadata", metadata.server),
        Route("GET", "/v2/models/stats", "statistics", metadata.statistics),
        Route("GET", "/v2/load", "statistics", metadata.server_load),
        Route("GET", "/v2/logging", "logging", settings.log),
        Route("POST", "/v2/logging", "logging", settings.change_log),
        *(
            Route(method, f"{prefix}/trace/setting", "trace", responder)
            for prefix in ("/v2", "/v2/models/{model:name}")
            for method, responder in (("GET", settings.trace), ("POST", settings.change_trace))
        ),
        Route("POST", "/v2/repository/index", "model-repository", repository.index),
        Route("POST", "/v2/repository/{repository}/index", "model-repository", repository.index),
        *(
            Route(
                "POST", f"/v2/repository/{of}models/{{model:name}}/{verb}", "model-repository", act
            )
            for of, load, unload in (
                ("", repository.load, repository.unload),
                ("{repository}/", repository.named_repository, repository.named_repository),
            )
            for verb, act in (("load", load), ("unload", unload))
        ),
    ]
    of_model = [
        Route("GET", "", "metadata", metadata.model),
        Route("GET", "/ready", "health", metadata.model_ready),
        Route("GET", "/config", "model-config", metadata.config),
        Route("GET", "/stats", "statistics", metadata.statistics),
        Route("GET", "/load", "statistics", metadata.model_load),
        Route("POST", "/infer", "inference", AsgiInferences(inference).infer),
    ]
    fixed += shared_memory_routes(gateway)
    table = fixed + [
        route._replace(path=prefix + route.path)
        for route in of_model
        for prefix in (
            "/v2/models/{model:name}",
            "/v2/models/{model:name}/versions/{version:number}",
        )
    ]
    for extension in HttpExtension.all_of(gateway):
        table += extension.routes(gateway)
        table = list(extension.around(gateway, table) or table)
    return table


class _Name(falcon.routing.BaseConverter):
    """A name as one segment of a path; a name that is too long makes an unknown path."""

    def convert(self, value: str) -> str | None:
        return value if 0 < len(value.encode()) <= MAX_MODEL_NAME_BYTES else None


class _Number(falcon.routing.BaseConverter):
    """A version, kept as text."""

    def convert(self, value: str) -> str | None:
        return value if value.isascii() and value.isdigit() else None


class _Path:
    """A resource of Falcon: one path with a responder for each method."""

    def __init__(self, rows: list[Route], access: AccessRules) -> None:
        responders = {row.method: access.responder(row) for row in rows}
        if "GET" in responders:  # the same without its body, which is left out below
            responders["HEAD"] = responders["GET"]
        responders |= access.others(rows[0], sorted(responders))
        for method, responder in responders.items():
            setattr(self, f"on_{method.lower()}", responder)


def build(
    gateway: Gateway, table: Sequence[Route], access: AccessRules
) -> falcon.asgi.App[HttpRequest, falcon.asgi.Response]:
    """Make the application of the table of routes; the gateway must have its settings."""
    app = falcon.asgi.App(request_type=HttpRequest)
    app.router_options.converters["name"] = _Name
    app.router_options.converters["number"] = _Number
    paths: dict[str, list[Route]] = {}
    for route in table:
        paths.setdefault(route.path, []).append(route)
    for template, rows in paths.items():
        app.add_route(template, _Path(rows, access))
    errors = _Errors(HttpExtension.all_of(gateway), table)
    app.add_error_handler(Exception, errors.answer_fault)
    app.add_error_handler(falcon.HTTPError, errors.answer_http_error)
    app.add_error_handler(ZmqTritonError, errors.answer_error)
    return app


def inference_heads(gateway: Gateway, table: list[Route], access: AccessRules) -> InferenceHeads:
    """Return the reader of inferences' heads, with the checks of their route."""
    row = next(route for route in table if route.path.endswith("/infer"))
    headers = [
        name for extension in HttpExtension.all_of(gateway) for name in extension.headers(gateway)
    ]
    return InferenceHeads(Inference(gateway), access.checks(row), access.tokens, headers)


class _Errors:
    """The responses to errors that responders raise, in the error form of the path."""

    def __init__(self, extensions: Iterable[HttpExtension], table: Sequence[Route]) -> None:
        #: Forms of errors by the beginning of their paths, of the extensions that have routes on
        #: this server.
        self._forms = {
            extension.prefix: extension.error_form
            for extension in extensions
            if extension.error_form is not None
            and any(route.path.startswith(extension.prefix) for route in table)
        }

    async def answer_error(
        self, req: HttpRequest, resp: falcon.asgi.Response, error: ZmqTritonError, params: Any
    ) -> None:
        if isinstance(error, refusals.AccessRefused):
            refusals.report(req.source(), error, params.get("model", ""))
        form = self._form_of(req)
        resp.status, resp.data = form.of_error(error) if form else problems.response_to(error)
        resp.set_headers(problems.headers_of(error))

    async def answer_http_error(
        self, req: HttpRequest, resp: falcon.asgi.Response, error: falcon.HTTPError, params: Any
    ) -> None:
        """Answer requests that Falcon itself or access.py refuses.

        For example for an unknown path, a wrong method, or a missing key.
        """
        if req.uri_template == "/" and isinstance(error, falcon.HTTPMethodNotAllowed):
            error = falcon.HTTPNotFound()  # Triton does not have this path
        resp.status = error.status
        headers = dict(error.headers or {})
        if "Allow" in headers:  # Falcon includes OPTIONS, which we answer with 405, too
            headers["Allow"] = headers["Allow"].replace("OPTIONS, ", "").replace(", OPTIONS", "")
        resp.set_headers(headers)
        text = clipped(error.description or falcon.code_to_http_status(error.status_code)[4:])
        if error.status_code in _REFUSALS:
            refusals.report_text(
                req.source(), refusals.NOT_PERMITTED, text, params.get("model", "")
            )
        if form := self._form_of(req):
            resp.status, resp.data = form.of_refusal(error.status_code, text)
        else:
            resp.data = json_documents.write({"error": text})

    async def answer_fault(
        self, req: HttpRequest, resp: falcon.asgi.Response, error: Exception, params: Any
    ) -> None:
        resp.status, resp.data = problems.fault(req.method, req.path, error)
        if form := self._form_of(req):
            text = orjson.loads(resp.data)["error"]
            resp.status, resp.data = form.of_refusal(resp.status_code, text)

    def _form_of(self, req: HttpRequest) -> ErrorForm | None:
        return next((self._forms[p] for p in self._forms if req.path.startswith(p)), None)
