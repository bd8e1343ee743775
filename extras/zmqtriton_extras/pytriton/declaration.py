"""The declaration, beside the package, which is what programs import."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn("pytriton", public={"pytriton": "."})
