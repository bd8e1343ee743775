"""The declaration, next to the package that models import in Pythons without the server."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option, Process


class RoutesOptions(NamedTuple):
    routes: Annotated[
        bool, Option("Serve the routes of models that have a routes.py, at /models/NAME/.")
    ] = False


ADDON = AddOn(
    "routes",
    needs=(),
    title="HTTP",
    after=("generate", "jobs"),
    options=RoutesOptions,
    # it has no clients of its own: frontends send requests to the models that it loads
    process=Process(".process", on="routes", title="Routes", is_serving=True, has_socket=False),
    public={
        "routes": ".backend.api",
        "testing.RouteAnswer": ".testing:RouteAnswer",
        "testing.call_route": ".testing:call_route",
    },
    offers={
        "http.extension": ".extension:EXTENSION",
        "models.backend": {
            "routes": ".backend",
        },
        "diagnosis.config": ".checks:warnings",
        "diagnosis.configs": ".checks:conflicts",
        "diagnosis.model": ".explaining",
    },
)
