"""POST /v1/chat/completions, /v1/completions and /v1/responses.

The first response decides the status; an error after it is the last event of a stream. When a
client leaves, the connection cancels the task, and the task cancels the requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpRequest,
    StreamItem,
    Threads,
    json_documents,
    now_ns,
    response_encoding,
)
from zmqtriton.sdk.wire import INLINE_BYTES, InvalidArgument, wire
from zmqtriton_extras.openai import request_tensors, requests
from zmqtriton_extras.openai.calls import Calls, as_it_is, together
from zmqtriton_extras.openai.choices import ChoiceRules, Choices
from zmqtriton_extras.openai.documents import (
    AnswerEvents,
    ChatCompletion,
    Completion,
)
from zmqtriton_extras.openai.problems import RefusedField, UnfitAnswer
from zmqtriton_extras.openai.request_tensors import text_body, written
from zmqtriton_extras.openai.requests import TextRequest
from zmqtriton_extras.openai.responses import Response, read_response
from zmqtriton_extras.openai.template_file import PARAMETER
from zmqtriton_extras.openai.templates import RefusedChatError
from zmqtriton_extras.openai.templates.children import Children, request_of
from zmqtriton_extras.openai.tensor_names import TensorNames, names_of
from zmqtriton_standard.generate.response import Events

#: The texts of an answer that is given as a whole take room in steps.
_STEP_BYTES = 64 << 10
Documents = Sequence[dict[str, Any]]

#: A long chat delays other chats only.
_lane = Threads("chat-prompts", 1, 1024)
#: Maximum number of messages of a chat without a template that is rendered on the loop.
_FEW_MESSAGES = 256
_VARIABLES = "openai_chat_template_variables"
#: The user that a model chooses for its processes.
_USER = "stub_user"


async def prompt_of(
    messages: Documents,
    tools: Documents,
    names: TensorNames,
    template: str,
    children: Children,
) -> str:
    """Return the prompt for a model; the messages as JSON if the model takes messages.

    Raises RefusedField, and the errors of Children.render.
    """
    if names.messages is not None or not template:
        if len(messages) <= _FEW_MESSAGES:
            return _prompt(messages, names)
        return await _lane.run(_prompt, messages, names)
    request = await _lane.run(_request, messages, tools, names, template)
    try:
        return await children.render(names.model, names.value(_USER), request)
    except RefusedChatError as error:
        raise RefusedField(str(error), "messages") from None


def _prompt(messages: Documents, names: TensorNames) -> str:
    if names.messages is not None:
        return written(messages).decode()
    return plain_prompt(with_texts(messages))


def _request(messages: Documents, tools: Documents, names: TensorNames, template: str) -> bytes:
    variables = names.value(_VARIABLES)
    return request_of(names.model, template, _for_template(messages), variables, tools)


def plain_prompt(messages: Documents) -> str:
    """Return a line for each message, with its role, and the beginning of the response."""
    lines = [f"{message['role']}: {message['content']}" for message in messages]
    return "\n".join([*lines, "assistant:"])


def with_texts(messages: Documents) -> list[dict[str, Any]]:
    """Return the messages, with each content as one text.

    Raises RefusedField for contents that are no text.
    """
    return [
        {**message, "content": _content(message.get("content"), position)}
        for position, message in enumerate(messages)
    ]


def _content(content: Any, position: int) -> str:
    if not isinstance(content, list):
        return content or ""
    texts = []
    for part in content:
        is_text = type(part) is dict and part.get("type") == "text"
        if not is_text or type(part.get("text")) is not str:
            field = f"messages[{position}].content"
            raise RefusedField(f"'{field}' may have parts of type 'text' only", field)
        texts.append(part["text"])
    return "\n".join(texts)


def _for_template(messages: Documents) -> list[dict[str, Any]]:
    """Return the messages as templates expect them: with arguments of calls as objects."""
    copies = with_texts(messages)
    for message in copies:
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [_with_arguments(call) for call in calls]
    return copies


def _with_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if type(function) is not dict or type(function.get("arguments")) is not str:
        return call
    try:
        arguments = json_documents.parse(function["arguments"].encode() or b"{}")
    except (ValueError, InvalidArgument):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


class _Exchange(NamedTuple):
    """A client's request as it was sent, and the form of its response."""

    req: HttpRequest
    request: TextRequest
    #: Name of the model, without the adapter that the client may have named with it.
    model: str
    prompts: list[str]
    form: Completion
    begun_ns: int

    @property
    def keeps_texts(self) -> bool:
        """True if a stream must remember the texts that it has sent."""
        return self.request.format.is_checked or self.form.repetitions > 0

    @property
    def large_bytes(self) -> int:
        """The size above which a thread reads responses; calls are searched in Python."""
        has_more = self.request.tools.documents or self.request.logprobs is not None
        return _STEP_BYTES if has_more else json_documents.LARGE_BYTES


class Texts:
    """The three responders, and their common parts."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)
        self._templates = Children(gateway.settings.server.stub_user)

    async def chat(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = await self._calls.read(req, requests.read_chat)
        form = ChatCompletion(request.model, has_usage=request.has_usage_in_stream)
        await self._continue_chat(req, resp, request, form, begun_ns)

    async def respond(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request, repeated = await self._calls.read(req, read_response)
        await self._continue_chat(req, resp, request, Response(request.model, repeated), begun_ns)

    async def complete(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = await self._calls.read(req, requests.read_completion)
        model, adapter = await self._calls.find_adapted(req, request.model)
        form = Completion(request.model, has_usage=request.has_usage_in_stream)
        adapted = request._replace(adapter=adapter)
        await self._answer(
            resp, _Exchange(req, adapted, model.name, request.prompts, form, begun_ns)
        )

    async def _continue_chat(
        self,
        req: HttpRequest,
        resp: falcon.asgi.Response,
        request: TextRequest,
        form: Completion,
        begun_ns: int,
    ) -> None:
        await self._answer(resp, await self._chat(req, request, form, begun_ns))

    async def find(self, req: HttpRequest, model: str) -> None:
        """Raise an error if the client would be refused the texts of a model."""
        await self._calls.find_adapted(req, model)

    async def stream_chat(
        self, req: HttpRequest, request: TextRequest, form: Completion
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of the response to a chat. Raises a refusal, or the model's error."""
        chunks = self._chunks(await self._chat(req, request, form, now_ns()))
        async with aclosing(chunks):
            async for events in chunks:
                yield events

    async def _chat(
        self, req: HttpRequest, request: TextRequest, form: Completion, begun_ns: int
    ) -> _Exchange:
        model, adapter = await self._calls.find_adapted(req, request.model)
        names = names_of(model)
        request = request._replace(adapter=adapter)
        request_tensors.check(request, names)
        prompt = await prompt_of(
            request.messages or [],
            request.tools.documents,
            names,
            model.files.get(PARAMETER, ""),
            self._templates,
        )
        return _Exchange(req, request, model.name, [prompt], form, begun_ns)

    async def _answer(self, resp: falcon.asgi.Response, exchange: _Exchange) -> None:
        if exchange.request.is_streamed:
            chunks = self._chunks(exchange)
            first = await anext(chunks)
            resp.content_type = "text/event-stream; charset=utf-8"
            req = exchange.req
            resp.stream = Events(
                first, chunks, as_it_is, exchange.form.failure, turn=req.turn, made=req.made
            )
        else:
            take, numbers = exchange.req.turn.take, range(len(exchange.prompts))
            answers = await together(take(self._read, exchange, number) for number in numbers)
            size = sum(answer.size for answer in answers)
            resp.data = await json_documents.perform(size, exchange.form.document, answers)
        resp.set_header("x-request-id", exchange.form.id)

    async def _chunks(self, exchange: _Exchange) -> AsyncGenerator[bytes, None]:
        """Yield the events of the response to one prompt after the other.

        Raises the model's error.
        """
        answers: list[Choices] = []
        keeps_texts, large_bytes = exchange.keeps_texts, exchange.large_bytes
        for number in range(len(exchange.prompts)):
            items, choices = self._begin(exchange, number)
            answers.append(choices)
            echoed, kept = choices.most_echoed, 0
            events = AnswerEvents(exchange.form, choices)
            async with aclosing(items):
                async for item in items:
                    body = item.content()
                    del item  # its memory may be the model's
                    if body is None:
                        continue
                    size, echoed = response_encoding.size_of_response(body) + echoed, 0
                    kept += size if keeps_texts else 0
                    if kept >= _STEP_BYTES:
                        exchange.req.hold(kept)
                        kept = 0
                    if size > INLINE_BYTES:
                        await exchange.req.wait_for_room(size)
                    added = await json_documents.perform(
                        size, _add, choices, events, body, large_bytes=large_bytes
                    )
                    del body
                    if added:
                        yield added
                    del added
            last = await _end(exchange, choices.size, events.end)
            await _check(exchange.request, choices)
            yield last
        size = sum(one.size for one in answers)
        yield await _end(exchange, size, partial(exchange.form.finish, answers))

    async def _read(self, exchange: _Exchange, number: int) -> Choices:
        """Return the complete response to one prompt. Raises the model's error."""
        items, choices = self._begin(exchange, number)
        unbooked = choices.most_echoed
        async with aclosing(items):
            async for item in items:
                if (body := item.content()) is None:
                    continue
                size = response_encoding.size_of_response(body)
                unbooked += size
                if unbooked >= _STEP_BYTES:
                    await exchange.req.wait_for_room(unbooked)
                    unbooked = 0
                await json_documents.perform(
                    size, choices.take, body, large_bytes=exchange.large_bytes
                )
        choices.end()
        await _check(exchange.request, choices)
        return choices

    def _begin(
        self, exchange: _Exchange, number: int
    ) -> tuple[AsyncGenerator[StreamItem, None], Choices]:
        request, prompt = exchange.request, exchange.prompts[number]
        model = self._calls.current(exchange.model)
        names = names_of(model)
        body = text_body(exchange.form.id, request, prompt, names)
        rules = ChoiceRules(
            limit=request.choices,
            has_echo=request.has_echo,
            are_kept=request.format.is_checked or not request.is_streamed,
            new_reader=request_tensors.call_reader(request, names),
            are_calls_a_reason=not request.tools.is_forced,
            is_parallel=request.tools.is_parallel,
            logprobs=request.logprobs,
        )
        choices = Choices(names, prompt, rules, first_index=number * request.choices)
        return self._calls.begin(exchange.req, model, body, exchange.begun_ns), choices


async def _check(request: TextRequest, choices: Choices) -> None:
    """Raise UnfitAnswer for a complete text without the form that the client requested."""
    form = request.format
    if not form.is_checked:
        return
    for choice in choices.all:
        if choice.reason == "stop" and not choice.call_count:
            # in a thread: how long it takes is up to the client's schema
            fault = await json_documents.perform(
                choice.size, form.fault, choice.text, large_bytes=0
            )
            if fault:
                raise UnfitAnswer(request.model, fault, form.field)


async def _end(exchange: _Exchange, size: int, write: Callable[[], bytes]) -> bytes:
    """Return events that end a stream, and may repeat its texts."""
    repeated = size * exchange.form.repetitions
    if repeated > INLINE_BYTES:
        await exchange.req.wait_for_room(repeated)
    return await json_documents.perform(repeated, write)


def _add(choices: Choices, events: AnswerEvents, body: wire.ResponseBody) -> bytes:
    """Return the events for a response's additions."""
    return events.add(choices.take(body))
