"""Jobs as an extension of the HTTP frontend; without --jobs it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton.sdk.frontend import Gateway, HttpExtension, Route, RouteDescriptions

_PREFER = (b"prefer",)


def _is_on(gateway: Gateway) -> bool:
    return bool(gateway.settings.option("jobs"))


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not _is_on(gateway):
        return ()
    # only now, as below: a server without jobs need not load them
    from zmqtriton_extras.jobs.routes import routes

    return routes(gateway)


def _around(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    if not _is_on(gateway):
        return []
    from zmqtriton_extras.jobs.routes import with_jobs

    return with_jobs(gateway, table)


def _headers(gateway: Gateway) -> tuple[bytes, ...]:
    return _PREFER if _is_on(gateway) else ()


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    if not _is_on(gateway):
        return RouteDescriptions()
    from zmqtriton_extras.jobs.routes import DESCRIPTIONS

    return DESCRIPTIONS


EXTENSION = HttpExtension(_routes, descriptions=_descriptions, around=_around, headers=_headers)
