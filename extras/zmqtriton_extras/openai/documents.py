"""The documents that answer requests for text: complete ones, and the chunks of streams."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.openai import problems
from zmqtriton_extras.openai.call_text import CallPart
from zmqtriton_extras.openai.choices import (
    Addition,
    Choice,
    Choices,
    TokenLogprob,
    chat_document,
    completion_document,
)

#: The end of every stream that has not failed.
DONE = b"data: [DONE]\n\n"


class Completion:
    """A response of /v1/completions."""

    prefix = "cmpl"
    whole = chunk = "text_completion"
    #: Number of times that the end of its stream repeats the whole text.
    repetitions = 0

    def __init__(self, model: str, *, has_usage: bool = False) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._common = {"created": int(time.time()), "model": model}
        #: Streams say null where they will tell it at their end.
        self._has_usage = has_usage
        #: Length of the text so far, by choice.
        self._offsets: dict[int, int] = {}

    def document(self, answers: Sequence[Choices]) -> bytes:
        """Return the complete response, with the choices of all prompts."""
        return self._write(
            self.whole,
            [
                self._choice(answer.first_index + i, choice, len(answer.echo))
                for answer in answers
                for i, choice in enumerate(answer.all)
            ],
            usage(answers),
        )

    def begin(self, index: int) -> bytes:
        """Return the event that begins a choice."""
        return b""

    def add(self, index: int, new: Addition) -> bytes:
        """Return the event that adds to a choice."""
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + len(new.text)
        tokens = completion_document(new.logprobs, offset) if new.logprobs else None
        return self._event([_text_choice(index, new.text, tokens, None)])

    def end(self, index: int, choice: Choice) -> bytes:
        """Return the event that ends a choice."""
        return self._event([_text_choice(index, "", None, choice.reason)])

    def finish(self, answers: Sequence[Choices]) -> bytes:
        """Return the events that end the stream."""
        if not self._has_usage:
            return DONE
        return b"data: %b\n\n%b" % (self._write(self.chunk, [], usage(answers)), DONE)

    def failure(self, error: ZmqTritonError) -> bytes:
        """Return the event that ends a begun stream with an error."""
        return problems.event(error)

    def _choice(self, index: int, choice: Choice, echoed: int) -> dict[str, Any]:
        tokens = completion_document(choice.logprobs, echoed) if choice.logprobs else None
        return _text_choice(index, choice.text, tokens, choice.reason)

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        # joined once: a text may be large
        return b"".join((b"data: ", self._write(self.chunk, choices, None), b"\n\n"))

    def _write(
        self, kind: str, choices: list[dict[str, Any]], used: dict[str, int] | None
    ) -> bytes:
        answer = {"id": self.id, "object": kind, **self._common, "choices": choices}
        if used is not None or self._has_usage:
            answer["usage"] = used
        return orjson.dumps(answer)


class ChatCompletion(Completion):
    """A response of /v1/chat/completions."""

    prefix = "chatcmpl"
    whole, chunk = "chat.completion", "chat.completion.chunk"

    def begin(self, index: int) -> bytes:
        return self._event([_delta(index, {"role": "assistant", "content": ""}, None)])

    def add(self, index: int, new: Addition) -> bytes:
        delta: dict[str, Any] = {}
        if new.text:
            delta["content"] = new.text
        if new.calls:
            delta["tool_calls"] = [_call_delta(part) for part in new.calls]
        return self._event([_delta(index, delta, None, new.logprobs)])

    def end(self, index: int, choice: Choice) -> bytes:
        return self._event([_delta(index, {}, choice.reason)])

    def _choice(self, index: int, choice: Choice, echoed: int) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": choice.text,
            "refusal": None,
        }
        if choice.calls:
            message["content"] = choice.text or None
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in choice.calls
            ]
        return {
            "index": index,
            "message": message,
            "logprobs": chat_document(choice.logprobs) if choice.logprobs else None,
            "finish_reason": choice.reason,
        }


class AnswerEvents:
    """The events of the answer to one prompt, in a stream."""

    def __init__(self, form: Completion, choices: Choices) -> None:
        self._form = form
        self._choices = choices
        self._begun = 0

    def add(self, added: Sequence[Addition]) -> bytes:
        """Return the events for additions to choices."""
        first, form = self._choices.first_index, self._form
        begun = self._begin()
        events = [
            form.add(first + new.number, new)
            for new in added
            if new.text or new.calls or new.logprobs
        ]
        if not begun and len(events) == 1:
            return events[0]
        return b"".join((begun, *events))

    def end(self) -> bytes:
        """Return the events that end all choices, after the last response."""
        rest = self.add(self._choices.end())
        first = self._choices.first_index
        ends = (self._form.end(first + i, one) for i, one in enumerate(self._choices.all))
        return rest + b"".join(ends)

    def _begin(self) -> bytes:
        """Return the events that begin new choices."""
        first, begun, echo = self._choices.first_index, self._begun, self._choices.echo
        self._begun = len(self._choices.all)
        events = b""
        for index in range(first + begun, first + self._begun):
            events += self._form.begin(index)
            if echo:
                events += self._form.add(index, Addition(index, echo))
        return events


def _text_choice(
    index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _delta(
    index: int, delta: dict[str, Any], reason: str | None, logprobs: Sequence[TokenLogprob] = ()
) -> dict[str, Any]:
    tokens = chat_document(logprobs) if logprobs else None
    return {"index": index, "delta": delta, "logprobs": tokens, "finish_reason": reason}


def _call_delta(part: CallPart) -> dict[str, Any]:
    if not part.name:
        return {"index": part.number, "function": {"arguments": part.arguments}}
    function = {"name": part.name, "arguments": part.arguments}
    return {"index": part.number, "id": part.id, "type": "function", "function": function}


def usage(answers: Sequence[Choices]) -> dict[str, int]:
    """Return the numbers of tokens that were read and generated for all prompts."""
    prompt = sum(answer.prompt_tokens for answer in answers)
    completion = sum(answer.completion_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
