"""The declaration, beside the package, which models import in Pythons without the server."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Option, Process

ADDON = AddOn(
    "routes",
    needs=("tools",),
    title="HTTP",
    after=("generate", "jobs"),
    options=(
        Option(
            "routes",
            bool,
            False,
            "Serve the routes of models that have a routes.py, at /models/NAME/.",
        ),
    ),
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
        "check.warnings": ".checks:warnings",
        "check.conflicts": ".checks:conflicts",
        "explain.findings": ".explaining",
    },
)
