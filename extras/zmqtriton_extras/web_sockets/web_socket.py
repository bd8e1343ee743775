"""One WebSocket of a client, above a connection that was HTTP's: messages in and out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import falcon

from zmqtriton.sdk.frontend import Gateway, HttpRequest, TaskTurn, Upgraded
from zmqtriton_extras.web_sockets.frames import (
    BINARY,
    CLOSE,
    GOING_AWAY,
    NORMAL,
    PING,
    PONG,
    TEXT,
    FrameReader,
    Message,
    Violation,
    accept_key,
    closing,
    frame,
)

#: The subprotocol of messages of models, which a client may name.
SUBPROTOCOL = "zmqtriton"
#: Silence of a client after which it gets a ping; after the same time again its connection ends.
SILENT_S = 30.0
#: Interval at which the server checks whether it is leaving, and whether the client is there.
_LOOK_S = 0.5


def begin(req: HttpRequest, subprotocol: str = SUBPROTOCOL) -> Upgraded:
    """Answer the handshake; return the connection. Raises a refusal if it is no handshake."""
    upgrade = (req.header(b"upgrade") or "").lower()
    if "websocket" not in upgrade or req.connection is None:
        raise falcon.HTTPError(
            426,
            description="this path is for WebSockets: connect with ws:// or wss://",
            headers={"Upgrade": "websocket", "Connection": "Upgrade"},
        )
    options = (req.header(b"connection") or "").lower()
    key = req.header(b"sec-websocket-key") or ""
    if "upgrade" not in options or len(key) != 24 or req.method != "GET":
        raise falcon.HTTPBadRequest(
            description="the handshake of a WebSocket is malformed: use a client library"
        )
    if req.header(b"sec-websocket-version") != "13":
        raise falcon.HTTPError(
            426,
            description="use version 13 of WebSockets",
            headers={"Sec-WebSocket-Version": "13"},
        )
    rows = [("upgrade", "websocket"), ("connection", "Upgrade")]
    rows.append(("sec-websocket-accept", accept_key(key)))
    offers = [o.strip() for o in (req.header(b"sec-websocket-protocol") or "").split(",")]
    if subprotocol in offers:
        rows.append(("sec-websocket-protocol", subprotocol))
    upgraded: Upgraded = req.connection.upgrade([(n.encode(), v.encode()) for n, v in rows])
    return upgraded


class WebSocket:
    def __init__(
        self,
        upgraded: Upgraded,
        reader: FrameReader,
        hold: Callable[[int], None],
        turn: TaskTurn,
    ) -> None:
        """Set up; `hold` accounts for bytes of a message, and raises if there is no room."""
        self._upgraded = upgraded
        self._reader = reader
        self._hold = hold
        self._held = 0
        self._turn = turn
        #: True once nothing more is sent: a closing frame was sent, or the client has left.
        self._is_closing = False
        #: Time when the client has last sent something.
        self.heard_at = asyncio.get_running_loop().time()

    async def receive(self) -> Message | None:
        """Return the next data message; None when the client sends no more.

        Raises Violation, and the errors of `hold`.
        """
        while True:
            message = self._reader.read()
            self._hold(self._reader.held_bytes - self._held)
            self._held = self._reader.held_bytes
            if self._turn.is_over:
                await asyncio.sleep(0)
            if message is None:
                data = await self._upgraded.read()
                if not data:
                    return None
                self.heard_at = asyncio.get_running_loop().time()
                self._reader.feed(data)
            elif message.opcode == CLOSE:
                await self.close(message.code)
                return None
            elif message.opcode == PING:
                await self.send(PONG, (message.data,))
            elif message.opcode in (TEXT, BINARY):
                return message

    async def send(self, opcode: int, parts: Sequence[bytes | memoryview]) -> None:
        """Send a message; wait until the client has read most of the sent bytes."""
        if not self._is_closing:
            await self._send(opcode, parts)

    async def send_texts(self, texts: Sequence[bytes]) -> None:
        """Send all messages or none of them, and wait for room as for one message."""
        parts = [part for text in texts for part in (frame(TEXT, len(text)), text)]
        if parts and not self._is_closing:
            await self._upgraded.write(parts)

    async def _send(self, opcode: int, parts: Sequence[bytes | memoryview]) -> None:
        await self._upgraded.write((frame(opcode, sum(map(len, parts))), *parts))

    def rest(self, is_resting: bool) -> None:
        """Report whether requests are in progress; without any, the connection may be closed."""
        self._upgraded.rest(is_resting)

    async def ask(self) -> None:
        """Ask the client for a sign of life (PING)."""
        await self.send(PING, (b"",))

    async def close(self, code: int = NORMAL, text: str = "") -> None:
        """Send the closing frame, once."""
        if not self._is_closing:
            self._is_closing = True
            await self._upgraded.write((closing(code, text),))

    def end(self) -> None:
        self._is_closing = True

    async def fail(self, violation: Violation) -> None:
        await self.close(violation.code, violation.text)


async def watch(
    socket: WebSocket,
    gateway: Gateway,
    is_quiet: Callable[[], bool],
    conversation: asyncio.Task[Any] | None,
) -> None:
    """Close the socket if the server is stopping, or the client does not respond."""
    loop, asked_at = asyncio.get_running_loop(), 0.0
    while True:
        await asyncio.sleep(_LOOK_S)
        now = loop.time()
        if (gateway.is_stopping or gateway.catalogue.is_draining) and is_quiet():
            await socket.close(GOING_AWAY, "the server leaves: connect again")
            break
        if now - socket.heard_at > 2 * SILENT_S:
            break
        if now - max(socket.heard_at, asked_at) > SILENT_S:
            asked_at = now
            await socket.ask()
    if conversation is not None:
        conversation.cancel()
