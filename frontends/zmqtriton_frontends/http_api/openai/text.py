"""POST /v1/chat/completions and /v1/completions.

The first response decides the status; an error after it is the last event of a stream. When a
client goes away, the connection cancels the task, and that cancels the requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

import falcon.asgi

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.openai import requests
from zmqtriton_frontends.http_api.openai.calls import Calls, together
from zmqtriton_frontends.http_api.openai.choices import Choices
from zmqtriton_frontends.http_api.openai.documents import ChatCompletion, Completion
from zmqtriton_frontends.http_api.openai.prompts import plain_prompt
from zmqtriton_frontends.http_api.openai.request_tensors import text_body
from zmqtriton_frontends.http_api.openai.requests import TextRequest
from zmqtriton_frontends.http_api.openai.tensor_names import TensorNames
from zmqtriton_frontends.inference.request_trace import now_ns


class _Asked(NamedTuple):
    """A request of a client as it has come."""

    req: Request
    request: TextRequest
    form: Completion
    begun_ns: int


class Texts:
    """The two responders and what they share."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)

    async def chat(self, req: Request, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = requests.read_chat(await self._calls.read(req))
        form = ChatCompletion(request.model, has_usage=request.has_usage_in_stream)
        await self._calls.find(request.model)
        prompt = plain_prompt(request.messages or [])
        await self._answer(resp, _Asked(req, request, form, begun_ns), [prompt])

    async def complete(self, req: Request, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = requests.read_completion(await self._calls.read(req))
        form = Completion(request.model, has_usage=request.has_usage_in_stream)
        await self._calls.find(request.model)
        await self._answer(resp, _Asked(req, request, form, begun_ns), request.prompts)

    async def _answer(self, resp: falcon.asgi.Response, asked: _Asked, prompts: list[str]) -> None:
        answers = await together(self._read(asked, prompt) for prompt in prompts)
        resp.set_header("x-request-id", asked.form.id)
        resp.data = asked.form.document(answers)

    async def _read(self, asked: _Asked, prompt: str) -> Choices:
        """Return the whole answer to one prompt. Raises the model's error."""
        items, choices = self._begin(asked, prompt)
        async with aclosing(items):
            async for item in items:
                if item.error is not None:
                    raise item.error
                if item.body is not None:
                    choices.take(item.body)
        choices.end()
        return choices

    def _begin(
        self, asked: _Asked, prompt: str
    ) -> tuple[AsyncGenerator[StreamItem, None], Choices]:
        request = asked.request
        model = self._calls.current(request.model)
        names = TensorNames(model.config, model.signature)
        body = text_body(asked.form.id, request, prompt, names)
        choices = Choices(names, prompt, request.choices, has_echo=request.has_echo)
        return self._calls.begin(asked.req, model, body, asked.begun_ns), choices
