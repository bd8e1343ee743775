"""The access log in the process of metrics: its figures on the page, and refusals of scrapers."""

from __future__ import annotations

from zmqtriton_addons.access_log import QUESTION, SERVICE
from zmqtriton_addons.access_log.refusals import log_refusals
from zmqtriton_addons.metrics.services import Figures, at_socket
from zmqtriton_frontends.gateway import Gateway


def metrics(gateway: Gateway) -> Figures:
    """Return the figures, which are asked of the log at each scrape."""
    log_refusals(gateway)
    return at_socket(gateway, SERVICE, QUESTION)
