"""Chooses the requests that go to a version that is tried, and those of which it gets copies.

Steps only while the requests to some model are divided.
"""

from __future__ import annotations

from zmqtriton_addons.canaries.requests.shadows import Shadows
from zmqtriton_floor.routing import goes_to_canary, is_copied
from zmqtriton_frontends.entrance import Ask, Content, Division
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.inference import Canary, CheckedRequest, ModelVersion


def division(gateway: Gateway) -> Division:
    """Return the steps of a process that serves."""
    canaries = Canaries(gateway)
    return Division(canaries.choose, canaries.copy)


class Canaries:
    def __init__(self, gateway: Gateway) -> None:
        self._shadows = Shadows(gateway)

    def choose(
        self, ask: Ask, model: ModelVersion, content: Content
    ) -> tuple[ModelVersion, Content]:
        """Pass a request on to the canary; before it is checked, since versions differ in that."""
        canary = model.canary
        if canary is None:
            return model, content
        return canary.version if _goes_there(canary, ask, content) else model, content

    def copy(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        """Have the canary get a copy of a request of the stable version."""
        canary = checked.model.canary
        if canary is None or not (canary.split.shadow and is_copied(canary.split)):
            return checked
        return checked._replace(copy=self._shadows.copy(checked, canary))


def _goes_there(canary: Canary, ask: Ask, content: Content) -> bool:
    """Choose by a header, by the sequence or another key that stays the same, or by chance."""
    header, split = ask.header, canary.split
    if canary.header and header is not None:
        value = header(canary.header)
        if value is not None and split.header_value in ("", value):
            return True
    key = content.options.correlation
    if canary.sticky and not key:
        if canary.sticky == b"id":
            key = content.body.request_id
        elif header is not None:
            key = header(canary.sticky) or ""
    return goes_to_canary(split, key)
