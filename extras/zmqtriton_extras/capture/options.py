"""The options of captures, checked when the server starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from zmqtriton.sdk.models import is_remote
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.capture.rates import parse
from zmqtriton_extras.storage.places import claim_parent, parse_bucket_url

#: Prefixes of addresses that get records as events, by POST.
EVENTS = ("http://", "https://")


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the options; "" without one."""
    try:
        parse(str(options["capture"]))
    except ValueError as error:
        return f"'--capture={options['capture']}': {error}"
    if not options["capture_to"]:
        return "'--capture' requires '--capture-to', the directory of the records"
    place = str(options["capture_to"])
    try:
        if is_remote(place):
            parse_bucket_url(place)
            claim_parent([place])
    except ZmqTritonError as error:
        return f"'--capture-to={place}': {error.text}"
    is_address = place.startswith(EVENTS)
    if is_address and not urlsplit(place).hostname:
        return f"'--capture-to={place}' has no host"
    return ""
