"""A protocol-neutral request becomes a checked one, ready for the gateway.

HTTP and gRPC both end here, so that no check can be missing from one of them.
"""

from __future__ import annotations

from typing import NamedTuple

from zmqtriton_floor.check import Admission
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.catalogue import Catalogue, ModelVersion


class Options(NamedTuple):
    """What a client may ask of the scheduler; the fields are those of wire.Request."""

    flags: int = 0
    priority: int = 0
    timeout_us: int = 0
    deadline_ns: int = 0
    correlation: int | str = 0


class CheckedRequest(NamedTuple):
    """Fits its model; the gateway sends it as it is."""

    model: ModelVersion
    body: RequestBody
    admission: Admission
    options: Options


def prepare(
    catalogue: Catalogue, model: str, version: str, body: RequestBody, options: Options
) -> CheckedRequest:
    """Raises what Catalogue.find and Signature.check raise."""
    found = catalogue.find(model, version)
    return CheckedRequest(found, body, found.signature.check(body), options)
