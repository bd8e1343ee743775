"""Trailing metadata that a client has asked for: the stages of its request, the model's load.

Asked by metadata of ModelInfer. Requests of a stream share one call, which has one end.
"""

from __future__ import annotations

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.inference import load_metrics, model_load, stage_times
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_frontends.inference.restrictions import by_category

#: The metadata that asks.
STAGE_HEADERS = frozenset((stage_times.WISH.encode(), load_metrics.FORMAT.encode()))


class StatisticsSource:
    """The counters that such wishes are answered from, and the key that they may need."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        restrictions = by_category(gateway.settings.access.restrictions)
        self._restriction = restrictions.get("statistics")

    async def load_metrics(self, form: str, model: ModelVersion) -> list[tuple[str, str | bytes]]:
        answer = await self._gateway.statistics(model.name, model.version, kind=wire.LOAD)
        load = model_load.of_model(answer["loads"])
        if form == "bin":
            return [(load_metrics.BINARY_METRICS, load_metrics.write_binary(load))]
        written = load_metrics.write(form, load)
        return [(load_metrics.METRICS, written)] if written else []

    def may_know(self, call: Call) -> bool:
        """True unless statistics need a key that the call does not have."""
        if self._restriction is None:
            return True
        name = self._restriction.name
        keys = [value for key, value in call.metadata if key == name]
        return self._restriction.admits([k if isinstance(k, bytes) else k.encode() for k in keys])


class StageTimeMetadata:
    """The answer to the wishes of one call, which begins with the call."""

    def __init__(self, source: StatisticsSource, call: Call) -> None:
        self.call = call
        self._statistics = source
        self._begun_ns = now_ns()

    def expect(self, checked: CheckedRequest) -> CheckedRequest:
        """Return the request that is to be sent, which may ask for its stages."""
        for name, value in self.call.metadata:
            if name == stage_times.WISH and stage_times.is_wish(value):
                return checked.with_stages(stage_times.Stages(self._begun_ns))
        return checked

    async def add(self, model: ModelVersion, stages: stage_times.Stages | None) -> None:
        """Add the requested headers to an answer that is ready."""
        call, source = self.call, self._statistics
        pairs: list[tuple[str, str | bytes]] = []
        forms = [value for name, value in call.metadata if name == load_metrics.FORMAT]
        if forms and isinstance(forms[0], str) and source.may_know(call):
            pairs += await source.load_metrics(forms[0].strip().lower(), model)
        if stages is not None:
            pairs.append((stage_times.ANSWER, stages.write()))
        if pairs:
            call.add_trailers(pairs)
