"""Examples of pipelines and of a batch job, which `zmqtriton example` writes."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn("pipelines")
