"""The events by which a response is told: those of /v1/responses under the names of realtime."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from zmqtriton_addons.web_apis.openai import problems
from zmqtriton_addons.web_apis.openai.choices import Choices
from zmqtriton_addons.web_apis.openai.documents import usage
from zmqtriton_addons.web_apis.openai.responses.documents import Response
from zmqtriton_floor.errors import ZmqTritonError

#: Ends of a response, which are one event here.
_DONE = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ITEM_EVENTS = {
    "response.output_item.added": "conversation.item.added",
    "response.output_item.done": "conversation.item.done",
}
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CANCELLED = "cancelled"


def event(kind: str, **members: Any) -> bytes:
    """Return an event, on a line of its own."""
    document = {"type": kind, "event_id": f"event_{uuid.uuid4().hex}", **members}
    return orjson.dumps(document) + b"\n"


def error_event(error: ZmqTritonError, event_id: str | None, code: str | None = None) -> bytes:
    """Return the error of a client's event."""
    described = problems.describe(error)
    described["code"] = code or described["code"]
    return event("error", error={**described, "event_id": event_id})


def item_document(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of a response as one of a conversation."""
    document = {"object": "realtime.item", **item}
    if "content" in item:
        parts = [{"type": part["type"], "text": part["text"]} for part in item["content"]]
        document["content"] = parts
    return document


class RealtimeResponse(Response):
    """One response in a conversation."""

    def __init__(self, model: str, conversation: str | None, repeated: dict[str, Any]) -> None:
        """Set up; without a conversation it becomes no part of one."""
        super().__init__(model, repeated)
        self._conversation = conversation
        #: The items that are over.
        self.items: list[dict[str, Any]] = []
        self._has_begun = False
        #: Its last event was told.
        self.is_over = False

    def begin(self, index: int) -> bytes:
        self._has_begun = True
        return super().begin(index)

    def cancel(self) -> bytes:
        """Return the events that end a response which its client does not want any more."""
        closed = self._end()
        return closed + self._tell("response.cancelled", response=self._response(_CANCELLED))

    def _end(self) -> bytes:
        """Return the events before the last one, of a response that ends early."""
        begun = b"" if self._has_begun else self.begin(0)
        return begun + self._close("incomplete")

    def failure(self, error: ZmqTritonError) -> bytes:
        closed = self._end()
        response = self._response("failed")
        described = problems.describe(error)
        response["status_details"]["error"] = {
            "type": described["type"],
            "code": described["code"],
            "message": described["message"],
        }
        return closed + self._tell("response.failed", response=response)

    def _tell(self, kind: str, **members: Any) -> bytes:
        if kind == "response.in_progress":
            return b""
        members.pop("logprobs", None)
        if "part" in members:
            members["part"] = {"type": "text", "text": members["part"]["text"]}
        item = item_document(members["item"]) if "item" in members else None
        if item is not None:
            members["item"] = item
        if "response" not in members:
            members["response_id"] = self.id
        if "item_id" in members and self._item is not None and self._item.call is not None:
            members["call_id"] = self._item.call.id
        self.is_over = kind in _DONE
        lines = event("response.done" if kind in _DONE else kind, **members)
        if item is None:
            return lines
        if kind.endswith(".done"):
            self.items.append(item)
        if self._conversation is None:
            return lines
        return lines + event(_ITEM_EVENTS[kind], item=item)

    def _response(self, status: str, answers: Sequence[Choices] = ()) -> dict[str, Any]:
        reason = _REASONS.get(answers[0].all[0].reason or "") if answers else None
        if status == _CANCELLED:
            reason = "client_cancelled"
        details = {"type": status, **({"reason": reason} if reason else {})}
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": None if status == "in_progress" else details,
            "output": list(self.items),
            "output_modalities": ["text"],
            "conversation_id": self._conversation,
            "usage": _usage(answers) if answers else None,
            **self._repeated,
        }


def _usage(answers: Sequence[Choices]) -> dict[str, Any]:
    used = usage(answers)
    return {
        "total_tokens": used["total_tokens"],
        "input_tokens": used["prompt_tokens"],
        "output_tokens": used["completion_tokens"],
        "input_token_details": {"text_tokens": used["prompt_tokens"], "cached_tokens": 0},
        "output_token_details": {"text_tokens": used["completion_tokens"]},
    }
