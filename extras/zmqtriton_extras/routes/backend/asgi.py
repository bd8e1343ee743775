"""Any ASGI application instead of routes: the protocols `http` and `lifespan`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Dict
from urllib.parse import quote

from zmqtriton_extras.routes.backend.api import infer

_LIFESPAN_S = 60.0
_MAX_DOCUMENT_BYTES = 4 << 20


class _KeptAnswer:
    """A response that no client gets."""

    def __init__(self) -> None:
        self.status = 0
        self.data = b""
        self.is_ended = self.is_cancelled = False

    def start(self, status: int, headers: Any) -> None:
        self.status = status

    async def send(self, part: Any, is_last: bool) -> None:
        if len(self.data) + len(part) > _MAX_DOCUMENT_BYTES:
            raise RuntimeError("the application's openapi.json is too long: shorten it")
        self.data += bytes(part)
        self.is_ended = is_last


class Application:
    """The application of a model, on the loop of its process."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._state: Dict[str, Any] = {"infer": infer}
        self._orders: Any = None
        self._news: Any = None
        self._living: Any = None

    async def start(self) -> None:
        """Send the application its startup event. Raises RuntimeError if it fails."""
        self._orders, self._news = asyncio.Queue(), asyncio.Queue()
        self._living = asyncio.ensure_future(self._live())
        await self._orders.put({"type": "lifespan.startup"})
        event = await asyncio.wait_for(self._news.get(), _LIFESPAN_S)
        if event["type"] == "lifespan.startup.failed":
            raise RuntimeError(
                f"the application must start, its lifespan failed: {event.get('message', '')}"
            )

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
        # an application without lifespan raises what it likes, or says nothing
        with suppress(Exception):
            await self._app({**scope, "state": self._state}, self._next_order, self._news.put)
        await self._news.put({"type": "lifespan.startup.complete"})

    async def _next_order(self) -> Dict[str, Any]:
        """Return the next event; a cancellation means to shut down.

        As in Triton, the loop ends with all its tasks before a model's finalize().
        """
        try:
            event: Dict[str, Any] = await self._orders.get()
        except asyncio.CancelledError:
            task: Any = asyncio.current_task()
            if hasattr(task, "uncancel"):  # before Python 3.11 nothing counts them
                task.uncancel()
            return {"type": "lifespan.shutdown"}
        return event

    async def describe(self, root: str) -> Dict[str, Any]:
        """Return the application's own /openapi.json; without one, no paths."""
        head = {
            **{"method": "GET", "root": root, "path": "/openapi.json", "query": ""},
            **{"scheme": "http", "http_version": "1.1", "client": (), "server": ()},
            "headers": [("host", "localhost"), ("accept", "application/json")],
        }
        kept = _KeptAnswer()
        try:
            await self.answer(head, memoryview(b""), kept)
            document = json.loads(kept.data) if kept.status == 200 else {}
        except Exception:  # noqa: BLE001 - an application without one raises what it likes
            document = {}
        return document if isinstance(document.get("paths"), dict) else {"paths": {}}

    async def answer(self, head: Dict[str, Any], body: memoryview, answer: Any) -> None:
        """Answer a request through the application."""
        is_given = False

        async def receive() -> Dict[str, Any]:
            nonlocal is_given
            if is_given:
                while not (answer.is_cancelled or answer.is_ended):
                    await asyncio.sleep(0.05)
                return {"type": "http.disconnect"}
            is_given = True
            return {"type": "http.request", "body": body.tobytes(), "more_body": False}

        async def send(event: Dict[str, Any]) -> None:
            if event["type"] == "http.response.start":
                rows = event.get("headers", ())
                answer.start(
                    event["status"],
                    [(n.decode("latin-1"), v.decode("latin-1")) for n, v in rows],
                )
            elif event["type"] == "http.response.body":
                data, is_last = event.get("body", b""), not event.get("more_body", False)
                if data or is_last:
                    await answer.send(data, is_last=is_last)

        await self._app(_scope(head, self._state), receive, send)
        if not answer.is_ended:
            raise RuntimeError(
                "the application has sent no response: it must send http.response.start and a body"
            )


def _scope(head: Dict[str, Any], state: Dict[str, Any]) -> Dict[str, Any]:
    path = head["root"] + head["path"]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": head["http_version"],
        "method": head["method"],
        "scheme": head["scheme"],
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": head["query"].encode(),
        "root_path": head["root"],
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in head["headers"]],
        "client": tuple(head["client"]) or None,
        "server": tuple(head["server"]) or None,
        "state": dict(state),
    }
