"""The server for people, over HTTP: pages, a description of its API, its state, operations."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option


class CockpitOptions(NamedTuple):
    allow_web_page: Annotated[
        bool,
        Option(
            "Serve a web page at /, the API's documentation at /docs and /openapi.json.",
            read="zmqtriton.options.values:boolean",
            metavar="boolean",
        ),
    ] = True


ADDON = AddOn(
    "cockpit",
    title="HTTP",
    options=CockpitOptions,
    # it describes the routes of all
    after=("*",),
    offers={
        "http.extension": ".pages:EXTENSION",
    },
)
