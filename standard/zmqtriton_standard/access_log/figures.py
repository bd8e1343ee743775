"""The access log in the process of metrics: its figures on the page, and refusals of scrapers."""

from __future__ import annotations

from zmqtriton_frontends.gateway import Gateway
from zmqtriton_standard.access_log.options import QUESTION, SERVICE
from zmqtriton_standard.access_log.refusals import log_refusals
from zmqtriton_standard.metrics.services import Figures, at_socket


def metrics(gateway: Gateway) -> Figures:
    """Return the figures, which are asked of the log at each scrape."""
    log_refusals(gateway)
    return at_socket(gateway, SERVICE, QUESTION)
