"""The declaration, beside the package, which models import in Pythons without the server."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Backend, Option, Process

ADDON = AddOn(
    "routes",
    options=(
        Option(
            "routes",
            bool,
            False,
            "Serve the routes of models that have a routes.py, at /models/NAME/.",
        ),
    ),
    title="HTTP",
    http=(".extension:EXTENSION",),
    # it has no clients of its own: frontends send requests to the models that it loads
    process=Process(".process", on="routes", title="Routes", is_serving=True, has_socket=False),
    backends={"routes": Backend(".backend")},
    warnings=".checks:warnings",
    conflicts=".checks:conflicts",
    findings=".explaining",
    public={
        "routes": ".backend.api",
        "testing.RouteAnswer": ".testing:RouteAnswer",
        "testing.call_route": ".testing:call_route",
    },
    after=("generate", "jobs"),
)
