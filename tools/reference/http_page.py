"""The page on HTTP: the routes of the application's own table, by category."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from tools.reference.markdown import code, heading, table
from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.options.values import HTTP_CATEGORIES
from zmqtriton.supervisor.machine.process_settings import Machine, settings_of
from zmqtriton_floor.settings.codec import decode
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_frontends.access.bearer_tokens import ANY, OPEN
from zmqtriton_frontends.grpc_api.handlers import table as rpcs
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Route
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.trace_sampling import Traces
from zmqtriton_standard.cockpit.description import all_operations

_ABOUT = """\
Every route of the server's HTTP port, in the categories by which `--http-restricted-api` and
`--grpc-restricted-protocol` guard them with a key, with the scope that a
[token](../guides/access.md#tokens) needs where there are tokens. Errors are `{"error": "..."}`;
[errors by text](errors.md) says what they mean.
HEAD is answered wherever GET is. `[/versions/V]` may be left out, which means the version that
serves. `/docs` of a running server has the bodies with examples, `/openapi.json` the same as
OpenAPI 3.1."""
_OTHER_PORTS = """\
`--metrics-port` (8002) has `GET /metrics` only, the [metrics](../metrics.md);
`--allow-sagemaker` and `--allow-vertex-ai` open [ports of their own](../guides/clouds.md)."""
_RPCS = """\
The RPCs of `--grpc-port` (8001), by the same categories; those without a service are of
`inference.GRPCInferenceService`. `zmqtriton protos DIRECTORY` writes the `.proto` files."""
_REMARKS = {
    "": "No category restricts them: they hold nothing of the server, and ask the API for it.",
    "openai": "With `--allow-openai`. [Guide](../guides/openai.md).",
    "steering": "Guides: [scaling](../guides/scaling.md), [canaries](../guides/canaries.md), "
    "[draining](../guides/draining.md).",
    "status": "[Guide](../guides/watching.md).",
    "logs": "[Guide](../guides/watching.md).",
}
_VERSIONS = "/versions/{version:number}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def page() -> Iterator[str]:
    yield from heading("HTTP", _ABOUT, "the tables of routes and RPCs of the frontends")
    routes = app.routes(_gateway())
    for category in (*HTTP_CATEGORIES, ""):
        yield from (f"## {category or 'pages'}", "")
        if category in _REMARKS:
            yield from (_REMARKS[category], "")
        own_routes = [route for route in routes if route.category == category]
        if more := sorted({route.general_category for route in own_routes} - {""}):
            yield from (f"Restricted with {' or '.join(map(code, more))}, too.", "")
        rows = [_row(route, own_routes) for route in own_routes if _VERSIONS not in route.path]
        yield from table(("Route", "Token", "What for"), rows)
    yield from ("## Other ports", "", _OTHER_PORTS, "", "## gRPC", "")
    yield from (_RPCS, "")
    by_category = defaultdict(list)
    for rpc in rpcs(_gateway(), None):
        name = f"{rpc.service}/{rpc.method}".removeprefix("inference.GRPCInferenceService/")
        by_category[rpc.category].append(code(name))
    yield from table(
        ("Category", "RPCs"),
        [(code(name), ", ".join(members)) for name, members in by_category.items()],
    )


def _gateway() -> Any:
    """Return a stand-in for a gateway, as far as the tables of routes need one."""
    options = Options(
        grpc_reflection=True, of_add_ons={"allow_openai": True, "allow_web_page": True}
    )
    machine = Machine(offers=addons.offers_in_use(options.value))
    settings = settings_of(options, machine).document("http")
    return SimpleNamespace(
        settings=decode(FrontendSettings, settings),
        catalogue=Catalogue(),
        traces=Traces(),
        token_marks=None,
        entrances=None,
    )


def _row(route: Route, others: list[Route]) -> tuple[str, str, str]:
    path = route.path
    prefix = "/v2/models/{model:name}"
    versioned = path.replace(prefix, prefix + _VERSIONS, 1)
    if any(other.path == versioned and other.method == route.method for other in others):
        path = path.replace(prefix, prefix + "[/versions/V]", 1)
    shown = _PARAMETER.sub(lambda match: match[1].upper(), path)
    name = str(getattr(route.responder, "__qualname__", ""))
    about = all_operations(_gateway())[name].summary
    need = {OPEN: "", ANY: "any"}.get(route.need, code(route.need))
    return f"`{route.method} {shown}`", need, about
