"""Files and batches as an extension of the HTTP frontend, if jobs and OpenAI's API are on."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton.sdk.frontend import Gateway, HttpExtension, Route, RouteDescriptions


def _is_on(gateway: Gateway) -> bool:
    return all(map(gateway.settings.option, ("allow_openai", "jobs")))


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not _is_on(gateway):
        return ()
    # only now, as below: other servers need not load them
    from zmqtriton_extras.jobs.batches.routes import routes

    return routes(gateway)


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    if not _is_on(gateway):
        return RouteDescriptions()
    from zmqtriton_extras.jobs.batches.routes import DESCRIPTIONS

    return DESCRIPTIONS


EXTENSION = HttpExtension(_routes, descriptions=_descriptions)
