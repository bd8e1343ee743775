"""A model's own routes: `routes.py` beside its code, in a process of the model's.

The routes of a model `ocr` are a model themselves, `ocr.routes`, of the backend `routes`: so they
have what models have, an environment, restarts, limits, a log, shared memory. `process/` loads and
unloads such models, `extension.py` gives them clients' requests, `backend/` is their code.
"""

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
    after=("generate", "jobs"),
)
