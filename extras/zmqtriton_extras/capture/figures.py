"""The figures of captures for the page of metrics, whose process reads them at each scrape."""

from __future__ import annotations

from zmqtriton.sdk.frontend import Gateway
from zmqtriton_extras.capture.frames import QUESTION, SERVICE
from zmqtriton_standard.metrics.services import Figures, at_socket


def metrics(gateway: Gateway) -> Figures:
    return at_socket(gateway, SERVICE, QUESTION)
