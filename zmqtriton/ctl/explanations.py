"""Explanations of models, by the add-ons that declare one."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton import addons
from zmqtriton.control_client.client import Client
from zmqtriton.findings import Finding
from zmqtriton_floor.process import references


def explain(client: Client, model: str = "", version: int = 0) -> Iterator[Finding]:
    """Yield the findings about a model, or about each that is in trouble, the worst first."""
    for reference in addons.rows(addons.EXPLANATIONS).values():
        yield from references.load(reference)(client, model, version)
