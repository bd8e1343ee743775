"""The entrance of HTTP, by which routes of add-ons ask models on behalf of their clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from zmqtriton_floor.arrays import to_arrays, to_tensors
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.request_trace import now_ns


class HttpEntrance(Entrance):
    def __init__(self, gateway: Gateway) -> None:
        pattern = gateway.settings.http.header_forward_pattern
        super().__init__(gateway, "HTTP_RECV", "HTTP_SEND", pattern)

    async def infer(
        self,
        req: Request,
        model: str,
        inputs: Mapping[str, Any],
        **more: Any,
    ) -> dict[str, Any]:
        """Ask a model for a client, as far as its token goes; return the outputs by name.

        Inputs are arrays, or what numpy makes arrays of. `more` may be `version`, `outputs`, the
        names of those that are wanted, `parameters` and `request_id`. Raises the errors that the
        client of `/infer` is told.
        """
        answers = self.stream(req, model, inputs, **more)
        async with aclosing(answers) as stream:
            async for outputs in stream:
                return outputs
        raise InternalError(f"model '{model}' has sent no response")

    async def stream(
        self,
        req: Request,
        model: str,
        inputs: Mapping[str, Any],
        *,
        version: str = "",
        outputs: tuple[str, ...] = (),
        parameters: Mapping[str, Any] | None = None,
        request_id: str = "",
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Return the outputs of each response; a model that is not decoupled has one."""
        fields = request_id, dict(parameters or {}), list(outputs)
        ask = Ask(
            (model, version),
            partial(_read, fields, inputs),
            *(req.header, req.spelled_headers, req.grant, req.deadline_ns, now_ns()),
        )
        items = self.responses(await self.admit(ask), req.arrivals())
        async with aclosing(items):
            async for item in items:
                if item.error is not None:
                    raise item.error
                if item.body is not None:
                    yield to_arrays(item.body.outputs)


def _read(
    fields: tuple[str, dict[str, Any], list[str]], inputs: Mapping[str, Any], model: ModelVersion
) -> Content:
    return Content(RequestBody(*fields, to_tensors(inputs, model.config)))
