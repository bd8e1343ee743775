"""The documents that answer requests for text: whole ones, and the chunks of streams."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from zmqtriton_addons.web_apis.openai.choices import Choice, Choices

#: The end of every stream that has not failed.
DONE = b"data: [DONE]\n\n"


class Completion:
    """One answer of /v1/completions."""

    prefix = "cmpl"
    whole = chunk = "text_completion"

    def __init__(self, model: str, *, has_usage: bool = False) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._common = {"created": int(time.time()), "model": model}
        #: Streams say null where they will tell it at their end.
        self._has_usage = has_usage

    def document(self, answers: Sequence[Choices]) -> bytes:
        """Return the whole answer, with the choices of all prompts."""
        return self._write(
            self.whole,
            [
                self._choice(answer.first_index + i, choice.text, choice.reason)
                for answer in answers
                for i, choice in enumerate(answer.all)
            ],
            usage(answers),
        )

    def begin(self, index: int) -> bytes:
        """Return the event that begins a choice."""
        return b""

    def add(self, index: int, text: str) -> bytes:
        """Return the event that adds to a choice."""
        return self._event([self._choice(index, text, None)])

    def end(self, index: int, choice: Choice) -> bytes:
        """Return the event that ends a choice."""
        return self._event([self._choice(index, "", choice.reason)])

    def finish(self, answers: Sequence[Choices]) -> bytes:
        """Return the events that end the stream."""
        if not self._has_usage:
            return DONE
        return b"data: %b\n\n%b" % (self._write(self.chunk, [], usage(answers)), DONE)

    def _choice(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        # joined once: a text may be large
        return b"".join((b"data: ", self._write(self.chunk, choices, None), b"\n\n"))

    def _write(
        self, kind: str, choices: list[dict[str, Any]], used: dict[str, int] | None
    ) -> bytes:
        found = {"id": self.id, "object": kind, **self._common, "choices": choices}
        if used is not None or self._has_usage:
            found["usage"] = used
        return orjson.dumps(found)


class ChatCompletion(Completion):
    """One answer of /v1/chat/completions."""

    prefix = "chatcmpl"
    whole, chunk = "chat.completion", "chat.completion.chunk"

    def begin(self, index: int) -> bytes:
        return self._event([_delta(index, {"role": "assistant", "content": ""}, None)])

    def add(self, index: int, text: str) -> bytes:
        return self._event([_delta(index, {"content": text}, None)])

    def end(self, index: int, choice: Choice) -> bytes:
        return self._event([_delta(index, {}, choice.reason)])

    def _choice(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


class AnswerEvents:
    """The events of the answer to one prompt, in a stream."""

    def __init__(self, form: Completion, choices: Choices) -> None:
        self._form = form
        self._choices = choices
        self._begun = 0

    def add(self, added: Sequence[tuple[int, str]]) -> bytes:
        """Return the events for what choices have got."""
        first, form = self._choices.first_index, self._form
        events = [form.add(first + i, text) for i, text in added if text]
        begun = self._begin()
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
        """Return the events that begin the choices that are new."""
        first, begun, echo = self._choices.first_index, self._begun, self._choices.echo
        self._begun = len(self._choices.all)
        found = b""
        for index in range(first + begun, first + self._begun):
            found += self._form.begin(index)
            if echo:
                found += self._form.add(index, echo)
        return found


def _delta(index: int, delta: dict[str, str], reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def usage(answers: Sequence[Choices]) -> dict[str, int]:
    """Return the tokens that were read and made for all prompts."""
    prompt = sum(answer.prompt_tokens for answer in answers)
    completion = sum(answer.completion_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
