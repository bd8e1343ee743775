"""The documents that answer a request for a response: a whole one, and the events of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from zmqtriton_addons.web_apis.openai import problems
from zmqtriton_addons.web_apis.openai.choices import Addition, Choice, Choices
from zmqtriton_addons.web_apis.openai.documents import Completion, usage
from zmqtriton_addons.web_apis.openai.logprobs import TokenLogprob
from zmqtriton_addons.web_apis.openai.tools.call_text import CallPart
from zmqtriton_floor.errors import ZmqTritonError

#: By the reason for which a text has ended, why a response is not complete.
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_IN_PROGRESS, _COMPLETED, _PARTIAL = "in_progress", "completed", "incomplete"


class _Item:
    """A message or a call of a response, as it grows."""

    def __init__(self, first: CallPart | None = None) -> None:
        """Set up; with the first part of a call it is that call."""
        self.call = first
        self.id = f"{'msg' if first is None else 'fc'}_{uuid.uuid4().hex}"
        self._pieces: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> None:
        self._pieces.append(text)
        self._logprobs += logprobs

    def part(self) -> dict[str, Any]:
        """Return the only part of a message."""
        tokens = [token.document() for token in self._logprobs]
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": tokens}

    def document(self, status: str) -> dict[str, Any]:
        if self.call is not None:
            return {
                "type": "function_call",
                "id": self.id,
                "call_id": self.call.id,
                "name": self.call.name,
                "arguments": self.text,
                "status": status,
            }
        content = [] if status == _IN_PROGRESS else [self.part()]
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": status,
            "content": content,
        }


class Response(Completion):
    """One answer of /v1/responses."""

    prefix = "resp"
    # of the part, of the item, and twice of the text itself
    repetitions = 4

    def __init__(self, model: str, repeated: dict[str, Any]) -> None:
        super().__init__(model)
        self._repeated = repeated
        self._created = int(time.time())
        self._model = model
        self._number = 0
        #: Those that are over, as documents, and the one that grows.
        self._done: list[dict[str, Any]] = []
        self._item: _Item | None = None

    def document(self, answers: Sequence[Choices]) -> bytes:
        """Return the whole answer."""
        (choice,) = answers[0].all
        status = self._status(choice)
        if choice.text or not choice.calls:
            message = _Item()
            message.add(choice.text, choice.logprobs)
            self._done.append(message.document(status))
        for call in choice.calls:
            item = _Item(CallPart(0, "", call.id, call.name))
            item.add(call.arguments)
            self._done.append(item.document(status))
        return orjson.dumps(self._response(status, answers))

    def begin(self, index: int) -> bytes:
        created = self._response(_IN_PROGRESS)
        return b"".join(
            self._tell(f"response.{name}", response=created) for name in ("created", "in_progress")
        )

    def add(self, index: int, new: Addition) -> bytes:
        events = []
        if new.text or new.logprobs:
            events.append(self._open(None))
            events.append(self._grow("output_text.delta", new.text, new.logprobs))
        for part in new.calls:
            if part.name:
                events.append(self._open(part))
            if part.arguments:
                events.append(self._grow("function_call_arguments.delta", part.arguments))
        return b"".join(events)

    def end(self, index: int, choice: Choice) -> bytes:
        begun = b"" if self._done or self._item is not None else self._open(None)
        return begun + self._close(self._status(choice))

    def finish(self, answers: Sequence[Choices]) -> bytes:
        status = self._status(answers[0].all[0])
        response = self._response(status, answers)
        return self._tell(f"response.{status}", response=response)

    def failure(self, error: ZmqTritonError) -> bytes:
        response = self._response("failed")
        description = problems.describe(error)
        code = "server_error" if error.http_status >= 500 else "invalid_prompt"
        response["error"] = {**description, "code": description["code"] or code}
        return self._tell("response.failed", response=response)

    def _status(self, choice: Choice) -> str:
        return _PARTIAL if choice.reason in _INCOMPLETE else _COMPLETED

    def _open(self, first: CallPart | None) -> bytes:
        """Begin an item, a call if there is the first part of one, unless a message goes on."""
        if first is None and self._item is not None and self._item.call is None:
            return b""
        before = self._close(_COMPLETED)
        item = self._item = _Item(first)
        events = [
            before,
            self._tell_item("response.output_item.added", item=item.document(_IN_PROGRESS)),
        ]
        if first is None:
            events.append(self._tell_part("response.content_part.added", part=item.part()))
        return b"".join(events)

    def _grow(self, kind: str, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        assert self._item is not None, "it was begun"
        self._item.add(text, logprobs)
        if self._item.call is not None:
            return self._tell_item(f"response.{kind}", item_id=self._item.id, delta=text)
        tokens = [token.document() for token in logprobs]
        return self._tell_part(f"response.{kind}", delta=text, logprobs=tokens)

    def _close(self, status: str) -> bytes:
        item = self._item
        if item is None:
            return b""
        if item.call is not None:
            events = [
                self._tell_item(
                    "response.function_call_arguments.done",
                    item_id=item.id,
                    name=item.call.name,
                    arguments=item.text,
                )
            ]
        else:
            part = item.part()
            events = [
                self._tell_part(
                    "response.output_text.done", text=part["text"], logprobs=part["logprobs"]
                ),
                self._tell_part("response.content_part.done", part=part),
            ]
        document = item.document(status)
        events.append(self._tell_item("response.output_item.done", item=document))
        self._done.append(document)
        self._item = None
        return b"".join(events)

    def _tell_part(self, kind: str, **members: Any) -> bytes:
        assert self._item is not None, "a part has an item"
        return self._tell_item(kind, item_id=self._item.id, content_index=0, **members)

    def _tell_item(self, kind: str, **members: Any) -> bytes:
        return self._tell(kind, output_index=len(self._done), **members)

    def _tell(self, kind: str, **members: Any) -> bytes:
        """Return an event, numbered."""
        document = {"type": kind, "sequence_number": self._number, **members}
        self._number += 1
        return b"".join((b"event: ", kind.encode(), b"\ndata: ", orjson.dumps(document), b"\n\n"))

    def _response(self, status: str, answers: Sequence[Choices] = ()) -> dict[str, Any]:
        reason = answers[0].all[0].reason if answers else ""
        incomplete = {"reason": _INCOMPLETE[reason]} if reason in _INCOMPLETE else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": incomplete,
            "model": self._model,
            "output": list(self._done),
            "usage": _usage(answers) if answers else None,
            "previous_response_id": None,
            "store": False,
            **self._repeated,
        }


def _usage(answers: Sequence[Choices]) -> dict[str, Any]:
    used = usage(answers)
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["total_tokens"],
    }
