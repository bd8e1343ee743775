"""Reports next to a response: the stages of its request, and the load of its model.

Requests get reports if their headers, or metadata, ask for them.
"""

from __future__ import annotations

from functools import partial

from zmqtriton_floor import wire
from zmqtriton_frontends.entrance.ask import Ask, Step
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference import load_metrics, stage_times
from zmqtriton_frontends.inference.admission import CheckedRequest, Pairs
from zmqtriton_frontends.inference.catalogue import HeaderLookup
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.restrictions import by_category

_STAGES, _LOAD = stage_times.WISH.encode(), load_metrics.FORMAT.encode()
#: Headers of requests that ask for a report.
REPORT_HEADERS = frozenset((_STAGES, _LOAD))


class Reports:
    def __init__(self, gateway: Gateway, coding: str) -> None:
        """Set up; `coding` is the text encoding that the protocol reads headers with."""
        self._gateway = gateway
        self._coding = coding
        self._restriction = by_category(gateway.settings.access.restrictions).get("statistics")

    def wanted_by(self, header: HeaderLookup) -> tuple[Step, ...]:
        """Return the step, if these headers ask for reports."""
        return (self,) if header(_STAGES) is not None or header(_LOAD) is not None else ()

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        header = ask.header
        if header is None:
            return checked
        form, stages = header(_LOAD), None
        if stage_times.is_wish(header(_STAGES)):
            stages = stage_times.Stages(ask.begun_ns)
            checked = checked.with_stages(stages)
        form = form.strip().lower() if form is not None and self._may_know(header) else ""
        return checked.with_report(partial(self._report, checked.model, form, stages))

    async def _report(
        self, model: ModelVersion, form: str, stages: stage_times.Stages | None
    ) -> Pairs:
        pairs: list[tuple[str, str | bytes]] = []
        if form:
            answer = await self._gateway.statistics(model.name, model.version, kind=wire.LOAD)
            load = load_metrics.of_model(answer["loads"])
            if form == "bin":
                pairs.append((load_metrics.BINARY_METRICS, load_metrics.write_binary(load)))
            elif written := load_metrics.write(form, load):
                pairs.append((load_metrics.METRICS, written))
        if stages is not None:
            pairs.append((stage_times.ANSWER, stages.write()))
        return pairs

    def _may_know(self, header: HeaderLookup) -> bool:
        """True unless statistics require a key that the request lacks."""
        if self._restriction is None:
            return True
        key = header(self._restriction.name.encode())
        return key is not None and self._restriction.admits([key.encode(self._coding)])
