"""Gathers the content of the Prometheus page from the broker and the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from zmqtriton.sdk.frontend import Gateway, refusals
from zmqtriton.sdk.process import Hook
from zmqtriton.sdk.wire import wire
from zmqtriton_standard.metrics import (
    clients,
    exposition,
    latencies,
    model_metrics,
    own,
    readiness,
    services,
)
from zmqtriton_standard.metrics.gpus import Gpus
from zmqtriton_standard.metrics.machine import Machine, MachineLoad
from zmqtriton_standard.metrics.processes import ModelUse

#: Makes a coroutine function. Each scrape calls it, and adds its text to the metrics page.
TEXT = Hook[Callable[[Gateway], Callable[[], Awaitable[str]]]]("metrics.text")


class Scraper:
    def __init__(
        self,
        gateway: Gateway,
        interval_s: float = 2.0,
        machine: Machine | None = None,
        gpus: Gpus | None = None,
        load: MachineLoad | None = None,
    ) -> None:
        """Set up; without `machine`, `gpus` or `load`, the page leaves out these metrics."""
        self._gateway = gateway
        self._machine = machine
        self._gpus = gpus
        self._load = load
        self._busyness = own.Busyness(interval_s)
        self._use = ModelUse()
        #: The files of certificates by service; None before the options are known.
        self._certificates: dict[str, str] | None = None
        self._has_latencies = gateway.settings.metrics.has_counters
        self._of_services = [make(gateway) for make in TEXT.all_of(gateway.settings.offers)]

    async def scrape(self) -> str:
        """Return the text of the page."""
        gateway, gpus = self._gateway, self._gpus
        statistics, status = await asyncio.gather(
            gateway.statistics(kind=wire.PAGE), gateway.call("status", {})
        )
        if self._certificates is None:
            self._certificates = _certificates(await gateway.call("options", {}))
        for stat in statistics["model_stats"]:
            load_s = status.get("loads", {}).get(stat["name"], {}).get(stat["version"])
            if load_s is not None:
                stat["zmqtriton"]["load_s"] = load_s
        config_of = gateway.catalogue.config_of
        stats = statistics["model_stats"]
        all_series = [
            model_metrics.Series(stat, config_of(stat["name"], int(stat["version"])))
            for stat in stats
        ]
        page = "".join(
            (
                exposition.render(stats, has_latencies=self._has_latencies, config_of=config_of),
                gpus.render() if gpus is not None else "",
                exposition.render_machine(self._machine, statistics["zmqtriton"].get("cache", {})),
                own.render_load(self._load) if self._load is not None else "",
                readiness.render(gateway),
                own.render(statistics["zmqtriton"], status),
                own.render_certificates(self._certificates),
                readiness.render_troubles(status, config_of),
                clients.render(status, refusals.counts),
                latencies.render_turns(status),
                own.render_models(all_series, status, self._busyness, self._use),
                own.render_refusals(all_series),
                latencies.render_request_times(all_series),
                model_metrics.merge(
                    await services.render(self._of_services)
                    + model_metrics.render(statistics.get("measures", []))
                ),
            )
        )
        return model_metrics.add_labels(page, gateway.settings.metrics.labels)


def _certificates(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    options = {row["option"]: row["value"] for row in rows}
    return {
        service: options[f"{service}-server-cert"]
        for service in ("http", "grpc")
        if options.get(f"{service}-use-ssl") and options.get(f"{service}-server-cert")
    }
