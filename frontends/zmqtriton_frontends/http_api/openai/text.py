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
from zmqtriton_frontends.http_api.inference.server_sent_events import Events
from zmqtriton_frontends.http_api.openai import problems, requests
from zmqtriton_frontends.http_api.openai.calls import Calls, together
from zmqtriton_frontends.http_api.openai.choices import Choices
from zmqtriton_frontends.http_api.openai.documents import (
    AnswerEvents,
    ChatCompletion,
    Completion,
)
from zmqtriton_frontends.http_api.openai.prompts import prompt_of
from zmqtriton_frontends.http_api.openai.request_tensors import text_body
from zmqtriton_frontends.http_api.openai.requests import TextRequest
from zmqtriton_frontends.http_api.openai.tensor_names import TensorNames
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_frontends.templates.children import Children


class _Asked(NamedTuple):
    """A request of a client as it has come, and what it is answered with."""

    req: Request
    request: TextRequest
    prompts: list[str]
    form: Completion
    begun_ns: int


class Texts:
    """The two responders and what they share."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)
        self._templates = Children(gateway.settings["stub_user"])

    async def chat(self, req: Request, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = await self._calls.read(req, requests.read_chat)
        model = await self._calls.find(req, request.model)
        names = TensorNames(model.config, model.signature)
        prompt = await prompt_of(
            request.messages or [], names, model.chat_template, self._templates
        )
        form = ChatCompletion(request.model, has_usage=request.has_usage_in_stream)
        await self._answer(resp, _Asked(req, request, [prompt], form, begun_ns))

    async def complete(self, req: Request, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = await self._calls.read(req, requests.read_completion)
        await self._calls.find(req, request.model)
        form = Completion(request.model, has_usage=request.has_usage_in_stream)
        await self._answer(resp, _Asked(req, request, request.prompts, form, begun_ns))

    async def _answer(self, resp: falcon.asgi.Response, asked: _Asked) -> None:
        if asked.request.is_streamed:
            chunks = self._chunks(asked)
            first = await anext(chunks)
            resp.content_type = "text/event-stream; charset=utf-8"
            resp.stream = Events(first, chunks, _as_it_is, problems.event, turn=asked.req.turn)
        else:
            take, numbers = asked.req.turn.take, range(len(asked.prompts))
            answers = await together(take(self._read, asked, number) for number in numbers)
            resp.data = asked.form.document(answers)
        resp.set_header("x-request-id", asked.form.id)

    async def _chunks(self, asked: _Asked) -> AsyncGenerator[bytes, None]:
        """Iterate over the events of the answer to one prompt after the other.

        Raises the model's error.
        """
        answers: list[Choices] = []
        for number in range(len(asked.prompts)):
            items, choices = self._begin(asked, number)
            answers.append(choices)
            events = AnswerEvents(asked.form, choices)
            async with aclosing(items):
                async for item in items:
                    if item.error is not None:
                        raise item.error
                    added = b"" if item.body is None else events.add(choices.take(item.body))
                    del item  # its memory may be the model's
                    if added:
                        yield added
            yield events.end()
        yield asked.form.finish(answers)

    async def _read(self, asked: _Asked, number: int) -> Choices:
        """Return the whole answer to one prompt. Raises the model's error."""
        items, choices = self._begin(asked, number)
        async with aclosing(items):
            async for item in items:
                if item.error is not None:
                    raise item.error
                if item.body is not None:
                    choices.take(item.body)
        choices.end()
        return choices

    def _begin(
        self, asked: _Asked, number: int
    ) -> tuple[AsyncGenerator[StreamItem, None], Choices]:
        request, prompt = asked.request, asked.prompts[number]
        model = self._calls.current(request.model)
        names = TensorNames(model.config, model.signature)
        body = text_body(asked.form.id, request, prompt, names)
        choices = Choices(
            names,
            prompt,
            request.choices,
            first_index=number * request.choices,
            has_echo=request.has_echo,
        )
        return self._calls.begin(asked.req, model, body, asked.begun_ns), choices


async def _as_it_is(events: bytes) -> bytes:
    return events
