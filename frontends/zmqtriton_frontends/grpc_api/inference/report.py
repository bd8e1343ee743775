"""Trailing metadata that a client has asked for: the stages of its request, the model's load.

Asked by metadata of ModelInfer. Requests of a stream share one call, which has one end.
"""

from __future__ import annotations

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.inference import load_metrics, model_load, stage_times
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.restrictions import by_category

#: The metadata that asks.
WISHES = frozenset((stage_times.WISH.encode(), load_metrics.FORMAT.encode()))


class Report:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        restrictions = by_category(gateway.settings.access.restrictions)
        self._restriction = restrictions.get("statistics")

    def expect(self, call: Call, checked: CheckedRequest, begun_ns: int) -> CheckedRequest:
        """Return the request that is to be sent, which may ask for its stages."""
        for name, value in call.metadata:
            if name == stage_times.WISH and stage_times.is_wish(value):
                return checked.with_stages(stage_times.Stages(begun_ns))
        return checked

    async def add(self, call: Call, checked: CheckedRequest) -> None:
        """Add the requested headers to an answer that is ready."""
        pairs: list[tuple[str, str | bytes]] = []
        forms = [value for name, value in call.metadata if name == load_metrics.FORMAT]
        if forms and isinstance(forms[0], str) and self._may_know(call):
            pairs += await self._load_metrics(forms[0].strip().lower(), checked)
        if checked.stages is not None:
            pairs.append((stage_times.ANSWER, checked.stages.write()))
        if pairs:
            call.add_trailers(pairs)

    async def _load_metrics(
        self, form: str, checked: CheckedRequest
    ) -> list[tuple[str, str | bytes]]:
        model = checked.model
        answer = await self._gateway.statistics(model.name, model.version, kind=wire.LOAD)
        load = model_load.of_model(answer["loads"])
        if form == "bin":
            return [(load_metrics.BINARY_METRICS, load_metrics.write_binary(load))]
        written = load_metrics.write(form, load)
        return [(load_metrics.METRICS, written)] if written else []

    def _may_know(self, call: Call) -> bool:
        """True unless statistics need a key that the call does not have."""
        if self._restriction is None:
            return True
        name = self._restriction.name
        keys = [value for found, value in call.metadata if found == name]
        return self._restriction.admits([k if isinstance(k, bytes) else k.encode() for k in keys])
