"""GET /v1/realtime?model=M: a conversation over a WebSocket, whose model answers with text.

The events are OpenAI's. A conversation lasts as long as its socket, with one response at a time.
Audio, images and stored prompts are refused by the field's name.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import falcon.asgi
import orjson

from zmqtriton.sdk.frontend import Arrivals, Gateway, HttpRequest, Share, json_documents
from zmqtriton.sdk.wire import (
    InternalError,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
    documents,
    errors,
)
from zmqtriton_extras.openai import fields as read
from zmqtriton_extras.openai import problems
from zmqtriton_extras.openai.choices import Choices
from zmqtriton_extras.openai.documents import usage
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.requests import TextRequest
from zmqtriton_extras.openai.responses import Response, read_response
from zmqtriton_extras.openai.text import Texts
from zmqtriton_extras.web_sockets.frames import TRY_AGAIN_LATER, FrameReader, Violation
from zmqtriton_extras.web_sockets.web_socket import WebSocket, begin, watch

_log = logging.getLogger(__name__)

#: Browsers name it, with their token as another one.
_SUBPROTOCOL = "realtime"
#: Bytes of one event, and items of one conversation.
_MAX_EVENT_BYTES, _MAX_ITEMS = 16 << 20, 4096
_ENDLESS = "inf"
#: Fields of a session, and of a response, that say what a text model cannot do: all values but
#: these are refused.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "output_modalities": (None, ["text"]),
    "audio": (None, {}),
    "prompt": (None,),
    "reasoning": (None,),
    "include": (None, []),
    "tracing": (None,),
    "truncation": (None, "auto", "disabled"),
}
#: Fields that a session has for all its responses.
_SETTINGS = ("instructions", "max_output_tokens", "tools", "tool_choice", "parallel_tool_calls")
_BUSY = "conversation_already_has_active_response"
#: Ends of a response, which are one event here.
_DONE = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ITEM_EVENTS = {
    "response.output_item.added": "conversation.item.added",
    "response.output_item.done": "conversation.item.done",
}
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CANCELLED = "cancelled"


def event(kind: str, **members: Any) -> bytes:
    """Return an event as a line."""
    document = {"type": kind, "event_id": f"event_{uuid.uuid4().hex}", **members}
    return orjson.dumps(document) + b"\n"


def error_event(error: ZmqTritonError, event_id: str | None, code: str | None = None) -> bytes:
    """Return the error event for an event of the client."""
    described = problems.describe(error)
    described["code"] = code or described["code"]
    return event("error", error={**described, "event_id": event_id})


def item_document(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of a response as an item of a conversation."""
    document = {"object": "realtime.item", **item}
    if "content" in item:
        parts = [{"type": part["type"], "text": part["text"]} for part in item["content"]]
        document["content"] = parts
    return document


class RealtimeResponse(Response):
    """A response in a conversation: events of /v1/responses under their realtime names."""

    def __init__(self, model: str, conversation: str | None, repeated: dict[str, Any]) -> None:
        """Set up; without a conversation the response is not added to one."""
        super().__init__(model, repeated)
        self._conversation = conversation
        #: The items that are over.
        self.items: list[dict[str, Any]] = []
        self._has_begun = False
        #: True once the last event of the response was made.
        self.is_over = False

    def begin(self, index: int) -> bytes:
        self._has_begun = True
        return super().begin(index)

    def cancel(self) -> bytes:
        """Return the events that end a response which the client has cancelled."""
        closed = self._end()
        return closed + self._tell("response.cancelled", response=self._response(_CANCELLED))

    def _end(self) -> bytes:
        """Return the events before the last one of a response that ends early."""
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


class Sessions:
    """The sessions of a process."""

    def __init__(self, gateway: Gateway, texts: Texts) -> None:
        self._gateway = gateway
        self._texts = texts

    async def converse(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        """Begin a WebSocket to a model, and serve it to its end. Raises what refuses it."""
        model = req.get_param("model") or ""
        if not model:
            raise RefusedField("'model' must be the name of a model", "model")
        # errors before the handshake are those of HTTP
        await self._texts.find(req, model)
        resp.status = falcon.HTTP_101
        upgraded = begin(req, _SUBPROTOCOL)
        limit = self._gateway.settings.http.max_input_size
        reader = (
            FrameReader(limit) if limit <= _MAX_EVENT_BYTES else FrameReader(_MAX_EVENT_BYTES, "")
        )
        socket = WebSocket(upgraded, reader, req.hold, req.turn)
        try:
            await _Session(self._gateway, self._texts, req, socket, model).run()
        finally:
            upgraded.close()


class _Turn:
    """The handshake's request for one response, with a memory account of its own.

    Events count there until they were sent, and texts that the end repeats until the end was sent.
    """

    def __init__(self, req: HttpRequest) -> None:
        self._req = req
        self.share: Share = req.connection.share.another()
        self._promised = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._req, name)

    def hold(self, size: int) -> None:
        if not self.share.take(size):
            raise Unavailable(errors.NO_MEMORY)

    async def wait_for_room(self, size: int) -> None:
        if not await self.share.wait(size):
            raise Unavailable(errors.TOO_MANY_UNREAD)
        self._promised += size

    def sent(self) -> None:
        """Give back the room of events that have been sent."""
        self.share.add(-self._promised)
        self._promised = 0

    def arrivals(self) -> Arrivals:
        return Arrivals(self.share)


class _Session:
    """The conversation of one client."""

    def __init__(
        self, gateway: Gateway, texts: Texts, req: HttpRequest, socket: WebSocket, model: str
    ) -> None:
        self._gateway = gateway
        self._texts = texts
        self._req = req
        self._socket = socket
        self._id = f"sess_{uuid.uuid4().hex}"
        self._conversation = f"conv_{uuid.uuid4().hex}"
        self._model = model
        self._settings: dict[str, Any] = {
            "instructions": "",
            "max_output_tokens": _ENDLESS,
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        }
        self._items: list[dict[str, Any]] = []
        #: The response under way, and the task that makes it.
        self._response: RealtimeResponse | None = None
        self._responding: asyncio.Task[None] | None = None
        self._events: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "session.update": self._update,
            "conversation.item.create": self._create_item,
            "conversation.item.retrieve": self._retrieve_item,
            "conversation.item.delete": self._delete_item,
            "response.create": self._respond,
            "response.cancel": self._cancel,
        }

    async def run(self) -> None:
        watching = asyncio.ensure_future(
            watch(self._socket, self._gateway, self._is_quiet, asyncio.current_task())
        )
        try:
            await self._send(event("session.created", session=self._document()))
            while (message := await self._socket.receive()) is not None:
                await self._take(bytes(message.data))
                del message
        except Violation as violation:
            await self._socket.fail(violation)
        except Unavailable as error:
            await self._socket.close(TRY_AGAIN_LATER, error.text)
        finally:
            tasks = [task for task in (watching, self._responding) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _is_quiet(self) -> bool:
        return self._responding is None

    async def _send(self, events: bytes) -> None:
        await self._socket.send_texts(events.splitlines())

    async def _take(self, text: bytes) -> None:
        """Carry out a client's event. The client gets an error if it is wrong."""
        own_id = None
        try:
            async with json_documents.room_for(self._req.hold, text):
                fields = read.fields_of(
                    await json_documents.perform(len(text), json_documents.parse, text)
                )
                own_id = fields.get("event_id")
                act = self._events.get(str(fields.get("type")))
                if act is None:
                    kinds = ", ".join(self._events)
                    raise RefusedField(f"'type' must be one of {kinds}", "type")
                await act(fields)
        except ZmqTritonError as error:
            code = getattr(error, "openai_code", None) or "invalid_value"
            await self._send(error_event(error, own_id if type(own_id) is str else None, code))

    # ----------------------------------------------------------------- the session

    async def _update(self, fields: dict[str, Any]) -> None:
        session = _object(fields, "session")
        read.refuse(session, {"type": (None, "realtime"), "model": (None, self._model), **_REFUSED})
        changed = {name: session[name] for name in _SETTINGS if session.get(name) is not None}
        settings = {**self._settings, **changed}
        self._read(settings, [])
        self._req.hold(_size(settings) - _size(self._settings))
        self._settings = settings
        await self._send(event("session.updated", session=self._document()))

    def _document(self) -> dict[str, Any]:
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": self._id,
            "model": self._model,
            "output_modalities": ["text"],
            **self._settings,
        }

    # ----------------------------------------------------------- the conversation

    async def _create_item(self, fields: dict[str, Any]) -> None:
        item = dict(_object(fields, "item"))
        own_id = item["id"] = item.get("id") or f"item_{uuid.uuid4().hex[:24]}"
        if type(own_id) is not str or not 0 < len(own_id) <= 64:
            raise RefusedField("'item.id' must be a string of up to 64 characters", "item.id")
        if any(other["id"] == own_id for other in self._items):
            raise RefusedField(
                f"there is an item with the id '{own_id}' already: choose another", "item.id"
            )
        if len(self._items) >= _MAX_ITEMS:
            raise Unavailable(f"a conversation can have at most {_MAX_ITEMS} items: delete some")
        self._read(self._settings, [item])
        before = fields.get("previous_item_id")
        if before is None:
            place = len(self._items)
        else:
            place = 0 if before == "root" else self._place(fields, "previous_item_id") + 1
        item = {"object": "realtime.item", "status": "completed", **item}
        self._keep(item, place)
        previous = self._items[place - 1]["id"] if place else None
        for kind in ("conversation.item.added", "conversation.item.done"):
            await self._send(event(kind, previous_item_id=previous, item=item))

    async def _retrieve_item(self, fields: dict[str, Any]) -> None:
        item = self._items[self._place(fields, "item_id")]
        await self._send(event("conversation.item.retrieved", item=item))

    async def _delete_item(self, fields: dict[str, Any]) -> None:
        item = self._items.pop(self._place(fields, "item_id"))
        self._req.hold(-_size(item))
        await self._send(event("conversation.item.deleted", item_id=item["id"]))

    def _keep(self, item: dict[str, Any], place: int) -> None:
        self._req.hold(_size(item))
        self._items.insert(place, item)

    def _place(self, fields: dict[str, Any], field: str) -> int:
        for place, item in enumerate(self._items):
            if item["id"] == fields.get(field):
                return place
        raise RefusedField(f"'{field}' must be the id of an item of the conversation", field)

    # --------------------------------------------------------------- the responses

    async def _respond(self, fields: dict[str, Any]) -> None:
        own = read.member(fields, "response") or {}
        read.refuse(own, {**_REFUSED, "conversation": (None, "auto", "none")})
        if self._responding is not None:
            raise _Refused("a response is under way: wait for its end, or cancel it", _BUSY)
        items = own.get("input")
        if items is None:
            items = self._items
        elif type(items) is not list:
            raise RefusedField("'response.input' must be a list of items", "response.input")
        settings = {**self._settings, **{n: own[n] for n in _SETTINGS if own.get(n) is not None}}
        request = self._read(settings, items, is_asked=True)
        has_part = own.get("conversation") != "none"
        repeated = {
            "metadata": read.member(own, "metadata"),
            "max_output_tokens": settings["max_output_tokens"],
        }
        response = RealtimeResponse(self._model, self._conversation if has_part else None, repeated)
        self._response = response
        make = partial(self._make, request, response, has_part=has_part)
        taking_turns = self._req.turn.take(make, begins_at_once=True)
        self._responding = asyncio.ensure_future(taking_turns)
        self._socket.rest(False)
        # a task that is cancelled before it has begun would never say that it has ended
        await asyncio.sleep(0)

    async def _make(
        self, request: TextRequest, response: RealtimeResponse, *, has_part: bool
    ) -> None:
        turn = _Turn(self._req)
        try:
            events = self._texts.stream_chat(cast(HttpRequest, turn), request, response)
            async with aclosing(events):
                async for lines in events:
                    await self._send(lines)
                    turn.sent()
        except asyncio.CancelledError:
            if self._response is response:  # the conversation ends
                raise
            if not response.is_over:
                await self._send(response.cancel())
        except Exception as error:  # noqa: BLE001 - an edge: the conversation goes on
            if not isinstance(error, ZmqTritonError):
                _log.error(
                    "a response in a conversation failed; see the server's log", exc_info=error
                )
                error = InternalError("internal error")
            await self._send(response.failure(error))
        finally:
            turn.share.release()
            self._response = self._responding = None
            self._socket.rest(True)
        try:
            for item in response.items if has_part else ():
                self._keep(item, len(self._items))
        except Unavailable as error:
            await self._send(error_event(error, None))

    async def _cancel(self, fields: dict[str, Any]) -> None:
        response, responding = self._response, self._responding
        own_id = fields.get("response_id")
        if response is None or responding is None or own_id not in (None, response.id):
            raise _Refused(
                "no response of this id is in progress: leave response_id out",
                "response_cancel_not_active",
            )
        self._response = None
        responding.cancel()
        await asyncio.wait((responding,))

    def _read(
        self, settings: dict[str, Any], items: list[Any], *, is_asked: bool = False
    ) -> TextRequest:
        """Return the request for a response to items. Raises RefusedField with client's names."""
        limit = settings["max_output_tokens"]
        document = {
            **settings,
            "model": self._model,
            "max_output_tokens": None if limit == _ENDLESS else limit,
            "input": items,
            "stream": True,
        }
        try:
            return read_response(document if items or is_asked else {**document, "input": "x"}).text
        except RefusedField as refusal:
            text, field = refusal.text, refusal.field
            if not is_asked:
                text, field = (each.replace("input[0]", "item") for each in (text, field))
            raise RefusedField(text, field) from None


class _Refused(InvalidArgument):
    """Raised for an event that does not fit the responses in progress."""

    field = None

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.openai_code = code


def _object(fields: dict[str, Any], field: str) -> dict[str, Any]:
    value = fields.get(field)
    if type(value) is not dict:
        raise RefusedField(f"'{field}' must be an object", field)
    return value


def _size(item: dict[str, Any]) -> int:
    return documents.cost_of(orjson.dumps(item))
