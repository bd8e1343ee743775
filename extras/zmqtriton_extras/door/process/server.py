"""The door's ROUTER on the process's loop, its clients, and the verbs that they may use.

A client is a connection. ZeroMQ reports connections by their descriptors and messages by their
routing id; a message knows its descriptor, so the death of a client can be noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import zmq

from zmqtriton.sdk.frontend import Entrance, Gateway, Ledger, by_category, max_connections, refusals
from zmqtriton.sdk.process import Service, peer_of, zmq_sockets
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, Unsupported, ZmqTritonError
from zmqtriton_extras.door import messages
from zmqtriton_extras.door.process import inference, responses
from zmqtriton_extras.door.process.control import Control, ControlExchange, Verb
from zmqtriton_extras.door.process.fields import Fields
from zmqtriton_extras.door.process.inference import DoorSink
from zmqtriton_extras.door.process.memory import MemoryLimit
from zmqtriton_extras.door.process.peer import COPIED_BYTES, Asked, Exchange, Peer
from zmqtriton_extras.door.process.responses import Message

_log = logging.getLogger(__name__)

#: Messages that ZeroMQ keeps for a client that does not read, and those that it reads ahead.
_UNREAD, _AHEAD = 64, 4
#: Messages that are read before others have their turn on the loop.
_MAX_A_TURN = 64
#: Seconds without a question of a client after which the door may close: the client knows that the
#: server stops, or sends nothing.
_QUIET_S = 1.0
#: Time for sending the last responses.
_LINGER_MS = 1000
_INFER, _CANCEL, _CREDIT = "infer", "cancel", "credit"
#: The first byte of the routing ids that libzmq makes; others are of clients' own making.
_OWN_ID = 0


class DoorServer(Service):
    role = "door"

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket that clients connect to."""
        self._gateway = gateway
        self._listener = listener
        self._entrance = Entrance(gateway, "DOOR_RECV", "DOOR_SEND")
        self._loop = asyncio.get_running_loop()
        settings = gateway.settings
        self.ledger: Ledger = Ledger(settings.memory.client_bytes)
        self._memory = MemoryLimit(self.ledger.requests.limit)
        self._verbs: dict[str, Verb] = Control(gateway).verbs()
        self._restrictions = by_category(settings.access.restrictions)
        self._context = zmq.Context()
        self._socket: Any = None
        self._monitor: Any = None
        #: Peers with their descriptors, by routing id.
        self._peers: dict[bytes, tuple[Peer, int]] = {}
        #: The connections that there are, with the routing id of the client once it has asked.
        self._connections: dict[int, bytes] = {}
        self._max_connections = max_connections()
        #: Peers with a full queue of ZeroMQ, so that nothing can be sent to them now.
        self._blocked: dict[Peer, None] = {}
        self._is_read_due = False
        self._path = ""
        self._asked_s = 0.0

    async def open(self) -> list[tuple[str, str]]:
        listener = self._listener
        self._path = path = str(listener.getsockname())
        listener.listen(socket.SOMAXCONN)
        self._socket, self._monitor = messages.open_server(
            self._context,
            path,
            listener.detach(),
            messages.MAX_FRAME_BYTES,
            (_UNREAD, _AHEAD),
        )
        for watched in (self._socket, self._monitor):
            self._loop.add_reader(watched.get(zmq.FD), self._read)
        self._read()
        return [("ZMQDoor", path)]

    def count_connections(self) -> int:
        return len(self._connections)

    async def end(self, within_s: float) -> None:
        """Refuse new connections; requests of clients that are still connected are answered."""
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        return self._is_quiet()

    def _is_quiet(self) -> bool:
        peers = [peer for peer, _ in self._peers.values()]
        is_asked = bool(peers) and self._loop.time() < self._asked_s + _QUIET_S
        return not is_asked and all(peer.is_idle for peer in peers)

    async def close(self) -> None:
        """Close the socket and cancel requests in flight."""
        for identity in list(self._peers):
            self._remove(identity)
        if self._socket is not None:
            for watched in (self._socket, self._monitor):
                self._loop.remove_reader(watched.get(zmq.FD))
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(_LINGER_MS)
            self._socket = None
        self._context.term()

    # ------------------------------------------------------------ the socket

    def _read(self) -> None:
        self._is_read_due = False
        if zmq_sockets.has_input(self._monitor):
            self._hear()
        # to ask is cheaper than to be refused, and nothing is here as often as something
        left = _MAX_A_TURN
        while left and zmq_sockets.has_input(self._socket):
            left -= 1
            frames = messages.take_frames(self._socket)
            if frames is None:
                break
            try:
                self._take(frames)
            except Exception:  # noqa: BLE001 - an edge: other clients' messages are behind it
                _log.exception("a message at the door could not be taken")
        if not left:
            self._read_soon()
        for peer in list(self._blocked):
            peer.flush()
            if not peer.is_blocked:
                self._blocked.pop(peer, None)

    def _read_soon(self) -> None:
        # Whatever is done with a socket of libzmq may consume the edge of its descriptor.
        if not self._is_read_due:
            self._is_read_due = True
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        if self._socket is not None:
            self._read()

    def _hear(self) -> None:
        """Process reports of begun and ended connections."""
        while (event := messages.connection_event(self._monitor)) is not None:
            has_begun, descriptor = event
            identity = self._connections.pop(descriptor, b"")
            if identity:
                self._remove(identity)
            if not has_begun:
                continue
            self._connections[descriptor] = b""
            if len(self._connections) > self._max_connections:
                _log.warning("a client was turned away: there are too many connections")
                _hang_up(descriptor)

    def _is_leaving(self) -> bool:
        return self._gateway.is_stopping

    def _put(self, identity: bytes, message: Message) -> bool:
        self._read_soon()
        try:
            messages.send_frames(self._socket, [identity, *message], COPIED_BYTES)
        except zmq.Again:
            self._blocked[self._peers[identity][0]] = None
            return False
        except zmq.ZMQError as error:
            # whoever answers reads from the broker, and goes on with the others' answers
            if error.errno != zmq.EHOSTUNREACH:
                _log.error("a client of the door cannot be answered: %s", error)
            self._loop.call_soon(self._remove, identity)
        return True

    def check(self) -> None:
        self._memory.check()
        now = self._loop.time()
        for peer, descriptor in list(self._peers.values()):
            if peer.is_stalled(now):
                _log.warning("a client of the door reads too slowly and is shut out")
                _hang_up(descriptor)

    # ------------------------------------------------------------ the clients

    def _peer_of(self, identity: bytes, frame: Any) -> Peer | None:
        """Return the sender of a frame; None if its connection has ended."""
        entry = self._peers.get(identity)
        if entry is not None:
            return entry[0]
        self._hear()
        descriptor = messages.descriptor_of(frame)
        if descriptor not in self._connections:
            if descriptor < 0:
                self._turn_away(identity)
            return None
        earlier = self._connections[descriptor]
        if earlier:
            self._remove(earlier)
        self._connections[descriptor] = identity
        put, shut_out = partial(self._put, identity), partial(_hang_up, descriptor)
        peer = Peer(self.ledger, put, shut_out, _user_of(descriptor), self._is_leaving)
        self._peers[identity] = peer, descriptor
        return peer

    def _turn_away(self, identity: bytes) -> None:
        """Refuse a client whose disconnection could not be noticed."""
        refusal = Unsupported("a client of the door must speak ZMTP 3, as libzmq 4 does")
        message = responses.error(messages.NO_ID, refusal)
        self._read_soon()
        with suppress(zmq.ZMQError):  # it does not read that either
            messages.send_frames(self._socket, [identity, *message], COPIED_BYTES)

    def _remove(self, identity: bytes) -> None:
        peer, _ = self._peers.pop(identity, (None, 0))
        if peer is not None:
            self._blocked.pop(peer, None)
            peer.leave()

    # ----------------------------------------------------------- the messages

    def _take(self, frames: list[Any]) -> None:
        identity = frames[0].bytes
        if len(frames) < 2:
            return
        peer = self._peer_of(identity, frames[1])
        if peer is None:
            return
        self._asked_s = self._loop.time()
        number = messages.NO_ID
        try:
            header = messages.decode(frames[1].buffer)
            number = header.id
            if identity[0] != _OWN_ID:
                raise InvalidArgument(
                    "a client must not choose its routing id; leave the option of its socket unset"
                )
            self._follow(peer, header, frames[2:])
        except ZmqTritonError as error:
            number = error.id if isinstance(error, messages.BadHeader) else number
            peer.answer(messages.NO_ID, responses.error(number, error))

    def _follow(self, peer: Peer, header: messages.Header, frames: Sequence[Any]) -> None:
        verb, number, document = header
        if not number:
            raise InvalidArgument("the id of a request must be an integer from 1")
        if verb == _CANCEL:
            Fields(document, verb).check_known()
            peer.cancel(number)
            return
        if verb == _CREDIT:
            fields = Fields(document, verb)
            responses = fields.count("responses")
            fields.check_known()
            peer.grant(number, responses)
            return
        if len(frames) > messages.MAX_FRAMES:
            raise InvalidArgument(f"a message cannot have more than {messages.MAX_FRAMES} frames")
        begin = self._beginning(peer, verb, number, document, frames)
        peer.ask(Asked(number, sum(map(len, frames)), begin))

    def _beginning(
        self, peer: Peer, verb: str, number: int, document: dict[str, Any], frames: Sequence[Any]
    ) -> Callable[[], Exchange | None]:
        """Return a function that begins a request at its turn."""
        row = self._verbs.get(verb)
        if row is None and verb != _INFER:
            raise Unsupported(f"there is no verb '{verb[:64]}'; use one of docs/door.md")
        keys = document.pop("keys", None)
        try:
            self._check_keys("inference" if row is None else row.category, keys)
        except Unavailable as error:
            refusals.report(refusals.Source("zmq", peer.name, verb), error)
            raise
        fields = Fields(document, verb, peer.user)

        def infer() -> Exchange:
            request = inference.read(fields, frames)
            exchange = DoorSink(self._entrance, peer, number, request)
            exchange.begin()
            return exchange

        def answer() -> Exchange:
            assert row is not None
            answering = row.handle(fields, frames)
            return ControlExchange(verb, answering, number, partial(peer.answer, number))

        return infer if row is None else answer

    def _check_keys(self, category: str, keys: Any) -> None:
        """Raise Unavailable, as gRPC does, for a verb whose key the client lacks."""
        restriction = self._restrictions.get(category)
        if restriction is None:
            return
        key = keys.get(restriction.header) if type(keys) is dict else None
        values = [key.encode()] if type(key) is str else []
        if not restriction.admits(values):
            refusals.counts["key"] += 1
            raise Unavailable(
                f"This protocol is restricted, expecting key '{restriction.header}'"
                + restriction.why_not(values)
            )


def _user_of(descriptor: int) -> int:
    """Return the user at the other end of a connection, by the kernel's word; -1 if it has gone."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return peer_of(connection)[1]
    except OSError:
        return -1


def _hang_up(descriptor: int) -> None:
    """End a connection of libzmq, which notices that its other end is closed."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
