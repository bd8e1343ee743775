"""Responses of routes: values become a status, headers and parts, which the model sends."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, AsyncIterator, Iterable, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.routes.backend.api import Response, RouteError

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_JSON, _TEXT, _EVENTS = "application/json", "text/plain; charset=utf-8", "text/event-stream"
#: A part of an answer has no more bytes: it is in memory twice.
_PART_BYTES = 8 << 20
#: Threads that send responses: one for each request, so that a slow reader delays no other request.
_sending = ThreadPoolExecutor(256, "answer")


class Answer:
    """The response to one request. Parts wait for their reader, in threads."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._sender = request.get_response_sender()
        self.is_begun = self.is_ended = False
        #: Event that is set when the response has begun.
        self.begun = asyncio.Event()
        self._head: Any = None

    @property
    def is_cancelled(self) -> bool:
        return bool(self._request.is_cancelled())

    def start(self, status: int, headers: Iterable[Tuple[str, str]]) -> None:
        """Set status and headers, which are sent with the first part."""
        if not 200 <= status <= 599:
            raise RuntimeError(f"{status} must be a status from 100 to 599")
        self._head = {"status": status, "headers": [list(row) for row in headers]}

    async def send(self, part: Any, is_last: bool) -> None:
        """Send a part, when the reader has room for it."""
        view = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while True:
            piece, view = view[:_PART_BYTES], view[_PART_BYTES:]
            await self._send(piece, is_last and not view)
            if not view:
                return

    async def _send(self, piece: Any, is_last: bool) -> None:
        tensors = [pb_utils.Tensor("BODY", np.frombuffer(piece, np.uint8))]
        if not self.is_begun:
            head = json.dumps(self._head).encode()
            tensors.append(pb_utils.Tensor("HEAD", np.array([head], np.object_)))
        self.is_begun, self.is_ended = True, is_last
        self.begun.set()
        send = partial(
            self._sender.send, pb_utils.InferenceResponse(tensors), _FINAL if is_last else 0
        )
        if is_last and len(piece) < 1 << 16:
            send()
        else:  # it waits for a slow reader, and others go on
            await asyncio.get_running_loop().run_in_executor(_sending, send)

    async def give(self, value: Any) -> None:
        """Answer with the return value of a route."""
        response = value if isinstance(value, Response) else Response(value)
        body, kind = response.body, response.content_type
        if hasattr(body, "__aiter__"):
            await self._give_parts(response, body)
            return
        data, own_kind = _encoded(body)
        self.start(response.status, [*response.headers, ("content-type", kind or own_kind)])
        await self.send(data, is_last=True)

    async def _give_parts(self, response: Response, parts: AsyncIterator[Any]) -> None:
        is_started = is_events = False
        async for part in parts:
            data, kind = _encoded(part)
            if not is_started:
                is_events = kind == _JSON and not response.content_type
                kind = response.content_type or (_EVENTS if is_events else kind)
                self.start(response.status, [*response.headers, ("content-type", kind)])
                is_started = True
            await self.send(b"data: " + data + b"\n\n" if is_events else data, is_last=False)
        if not is_started:
            kind = response.content_type or _EVENTS
            self.start(response.status, [*response.headers, ("content-type", kind)])
        await self.send(b"", is_last=True)

    def fail(self, status: int, text: str) -> None:
        """Respond with an error; a client sees that a begun response is incomplete."""
        if self.is_ended:
            return
        if self.is_begun:
            error = pb_utils.InferenceResponse(error=pb_utils.TritonError(text))
        else:
            head = {"status": status, "headers": [["content-type", _JSON]]}
            body = np.frombuffer(json.dumps({"error": text}).encode(), np.uint8)
            heads = np.array([json.dumps(head).encode()], np.object_)
            error = pb_utils.InferenceResponse(
                [pb_utils.Tensor("BODY", body), pb_utils.Tensor("HEAD", heads)]
            )
        self.is_begun = self.is_ended = True
        self._sender.send(error, _FINAL)


def _encoded(value: Any) -> Tuple[bytes, str]:
    if isinstance(value, str):
        return value.encode(), _TEXT
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), "application/octet-stream"
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False).encode(), _JSON
    except (TypeError, ValueError) as error:
        raise RouteError(
            500, f"the route must return a dict, a list, a text, bytes or a Response: {error}"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot become JSON: return a dict, a list or a text")
