"""POST /v1/chat/completions and /v1/completions.

The first response decides the status; an error after it is the last event of a stream. When a
client goes away, the connection cancels the task, and that cancels the requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

import falcon.asgi

from zmqtriton_addons.web_apis.openai import problems, requests
from zmqtriton_addons.web_apis.openai.calls import Calls, together
from zmqtriton_addons.web_apis.openai.choices import Choices
from zmqtriton_addons.web_apis.openai.documents import (
    AnswerEvents,
    ChatCompletion,
    Completion,
)
from zmqtriton_addons.web_apis.openai.prompts import prompt_of
from zmqtriton_addons.web_apis.openai.request_tensors import text_body
from zmqtriton_addons.web_apis.openai.requests import TextRequest
from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames
from zmqtriton_addons.web_apis.templates.children import Children
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway import Gateway, StreamItem
from zmqtriton_frontends.http_api import Events, Request, size_of_response
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.inference import now_ns

#: The texts of an answer that is given as a whole take room in steps.
_STEP_BYTES = 64 << 10


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
        self._templates = Children(gateway.settings.server.stub_user)

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
            req = asked.req
            resp.stream = Events(
                first, chunks, _as_it_is, problems.event, turn=req.turn, made=req.made
            )
        else:
            take, numbers = asked.req.turn.take, range(len(asked.prompts))
            answers = await together(take(self._read, asked, number) for number in numbers)
            size = sum(answer.size for answer in answers)
            resp.data = await _write(size, asked.form.document, answers)
        resp.set_header("x-request-id", asked.form.id)

    async def _chunks(self, asked: _Asked) -> AsyncGenerator[bytes, None]:
        """Iterate over the events of the answer to one prompt after the other.

        Raises the model's error.
        """
        answers: list[Choices] = []
        for number in range(len(asked.prompts)):
            items, choices = self._begin(asked, number)
            answers.append(choices)
            echoed = choices.most_echoed
            events = AnswerEvents(asked.form, choices)
            async with aclosing(items):
                async for item in items:
                    if item.error is not None:
                        raise item.error
                    body = item.body
                    del item  # its memory may be the model's
                    if body is None:
                        continue
                    size, echoed = size_of_response(body) + echoed, 0
                    work = partial(_add, choices, events, body)
                    del body
                    if size > INLINE_BYTES:
                        await asked.req.wait_for_room(size)
                    added = await _write(size, work)
                    del work
                    if added:
                        yield added
                    del added
            yield events.end()
        yield asked.form.finish(answers)

    async def _read(self, asked: _Asked, number: int) -> Choices:
        """Return the whole answer to one prompt. Raises the model's error."""
        items, choices = self._begin(asked, number)
        unbooked = choices.most_echoed
        async with aclosing(items):
            async for item in items:
                if item.error is not None:
                    raise item.error
                if item.body is None:
                    continue
                unbooked += size_of_response(item.body)
                if unbooked >= _STEP_BYTES:
                    await asked.req.wait_for_room(unbooked)
                    unbooked = 0
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
            are_kept=not request.is_streamed,
        )
        return self._calls.begin(asked.req, model, body, asked.begun_ns), choices


async def _write(size: int, write: Callable[..., bytes], *arguments: object) -> bytes:
    """Return the written bytes, by a thread if they are many."""
    if size < json_documents.LARGE_BYTES:
        return write(*arguments)
    return await json_documents.aside(size, write, *arguments)


def _add(choices: Choices, events: AnswerEvents, body: ResponseBody) -> bytes:
    """Return the events for what a response adds."""
    return events.add(choices.take(body))


async def _as_it_is(events: bytes) -> bytes:
    return events
