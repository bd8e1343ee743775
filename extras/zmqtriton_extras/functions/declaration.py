"""The declaration, beside the package, which models import in Pythons without the server."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Backend

ADDON = AddOn(
    "functions",
    backends={"functions": Backend(".backend", models_in=".sources:models_in")},
    public={
        "Array": ".backend.api:Array",
        "Failed": ".backend.api:Failed",
        "model": ".backend.api:model",
    },
)
