"""The declaration, next to the package that programs import."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn("pytriton", public={"pytriton": "."})
