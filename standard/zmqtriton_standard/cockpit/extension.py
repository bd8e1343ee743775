"""The cockpit as an extension of the HTTP frontend."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import HttpExtension, Route
from zmqtriton_standard.cockpit.description import Description
from zmqtriton_standard.cockpit.operations import Operations
from zmqtriton_standard.cockpit.pages import Pages
from zmqtriton_standard.cockpit.status import Status


def _with_pages(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    """Return the routes with the pages, and the description of all."""
    if not gateway.settings.http.allow_web_page:
        return ()
    whole = list(table)
    description = Description(gateway, whole)
    whole.append(Route("GET", "/openapi.json", "metadata", description.document))
    whole += Pages().routes()
    return whole


EXTENSION = HttpExtension(
    lambda gateway: [*Operations(gateway).routes(), *Status(gateway).routes()], around=_with_pages
)
