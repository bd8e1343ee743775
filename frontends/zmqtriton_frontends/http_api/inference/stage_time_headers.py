"""Headers of an answer that its client has asked for: the stages of the request, the model's load.

Without such a wish nothing here is entered but a look at two headers.
"""

from __future__ import annotations

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference import load_metrics, model_load, stage_times
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import HeaderLookup, ModelVersion
from zmqtriton_frontends.inference.restrictions import by_category

_STAGES, _LOAD = stage_times.WISH.encode(), load_metrics.FORMAT.encode()
#: The headers that ask.
STAGE_HEADERS = (_STAGES, _LOAD)


class StageTimeHeaders:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._restriction = by_category(gateway.settings.access.restrictions).get("statistics")

    def expect(
        self, header: HeaderLookup, checked: CheckedRequest, begun_ns: int
    ) -> CheckedRequest:
        """Return the request that is to be sent, which may ask for its stages."""
        if stage_times.is_wish(header(_STAGES)):
            return checked.with_stages(stage_times.Stages(begun_ns))
        return checked

    async def headers(
        self, header: HeaderLookup, model: ModelVersion, stages: stage_times.Stages | None
    ) -> tuple[tuple[str, str], ...]:
        """Return the requested headers for an answer that is ready."""
        headers: tuple[tuple[str, str], ...] = ()
        form = header(_LOAD)
        if form is not None and self._may_know(header):
            answer = await self._gateway.statistics(model.name, model.version, kind=wire.LOAD)
            written = load_metrics.write(form.strip().lower(), model_load.of_model(answer["loads"]))
            if written:
                headers += ((load_metrics.METRICS, written),)
        if stages is not None:
            headers += ((stage_times.ANSWER, stages.write()),)
        return headers

    def _may_know(self, header: HeaderLookup) -> bool:
        """True unless statistics need a key that the request does not have."""
        if self._restriction is None:
            return True
        key = header(self._restriction.name.encode())
        return key is not None and self._restriction.admits([key.encode("latin-1")])
