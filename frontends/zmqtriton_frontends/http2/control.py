"""The frames that carry no request: settings, windows, pings, resets; and what they may cost.

Part of connection.py. A frame may make the server do more than its bytes cost its client, so there
is a budget for each kind of work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import Budget, Clock, PingRules, Pings
from zmqtriton_frontends.http2.reading import ConnectionFault, Handler
from zmqtriton_frontends.http2.stream import Http2Stream

#: Frames that a client may send without asking for anything by them, and how many more per second.
_IDLE_FRAMES, _IDLE_FRAMES_PER_S = 1000, 100
#: Calls that it may begin and reset, or have reset by breaking a rule.
_RESETS, _RESETS_PER_S = 10_000, 1000
#: Streams that are looked at because it changes the window of all.
_VISITS, _VISITS_PER_S = 100_000, 10_000
#: The data of the ping whose answer shows that a client has read the GOAWAY.
FAREWELL = b"farewell"

_WINDOW_OVERFLOW = "flow-control window overflow"


class Controlled(Protocol):
    """The connection, as these frames change it."""

    streams: dict[int, Http2Stream]
    has_begun: bool
    window: int
    first_window: int
    frame_size: int
    left_early: dict[int, None]
    turns: deque[Http2Stream]
    sent_count: int

    def leave_early(self, number: int) -> None: ...

    def write(self, data: bytes) -> None: ...

    def check_known(self, number: int) -> None: ...

    def forget(self, stream: Http2Stream) -> None: ...

    def refuse(self, stream: Http2Stream, code: int) -> None: ...

    def refuse_streams(self) -> None: ...

    def has_room(self, stream: Http2Stream) -> None: ...

    def go_on(self) -> None: ...


class ControlFrames:
    def __init__(self, connection: Controlled, pings: PingRules, clock: Clock) -> None:
        self._connection = connection
        self._pings = Pings(pings, clock)
        self._idle_frames = Budget(_IDLE_FRAMES, _IDLE_FRAMES_PER_S, clock)
        self._resets = Budget(_RESETS, _RESETS_PER_S, clock)
        self._visits = Budget(_VISITS, _VISITS_PER_S, clock)
        #: Frame handlers, by frame type.
        self.handlers: list[Handler] = [self._on_unknown] * 256
        self.handlers[frames.PRIORITY] = self._on_priority
        self.handlers[frames.RST_STREAM] = self._on_reset
        self.handlers[frames.SETTINGS] = self._on_settings
        self.handlers[frames.PUSH_PROMISE] = self._on_push
        self.handlers[frames.PING] = self._on_ping
        self.handlers[frames.GOAWAY] = self._on_goaway
        self.handlers[frames.WINDOW_UPDATE] = self._on_window

    def take_idle_frame(self) -> None:
        """Count a frame that asks for nothing."""
        if not self._idle_frames.spend():
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many frames that carry no request")

    def spend_reset(self) -> None:
        """Count a call that is reset, by the client or because of it."""
        if not self._resets.spend():
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many calls that were reset")

    def refuse_new(self, number: int, code: int) -> None:
        """Reset a stream that does not begin."""
        self.spend_reset()
        self._connection.leave_early(number)
        self._connection.write(frames.reset(number, code))

    def check_left_early(self, number: int) -> None:
        """Check that a closed stream was not closed by the client. Raises ConnectionFault."""
        if number not in self._connection.left_early:
            raise ConnectionFault(frames.STREAM_CLOSED, "frame on a closed stream")

    def _on_unknown(self, flags: int, number: int, payload: bytes) -> None:
        self.take_idle_frame()

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM has the wrong length")
        self._connection.check_known(number)
        self.spend_reset()
        stream = self._connection.streams.get(number)
        if stream is not None:
            stream.was_ended = True  # nothing more may come
            self._connection.forget(stream)
            stream.on_reset()

    def _on_priority(self, flags: int, number: int, payload: bytes) -> None:
        if number == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY must be on a stream")
        if len(payload) != 5:
            stream = self._connection.streams.get(number)
            if stream is not None:
                self._connection.refuse(stream, frames.FRAME_SIZE_ERROR)
        self.take_idle_frame()

    def _on_push(self, flags: int, number: int, payload: bytes) -> None:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a client must not send PUSH_PROMISE")

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) < 8:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "malformed GOAWAY")
        self.take_idle_frame()

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS must be on stream 0")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS has the wrong length")
        self._connection.has_begun = True
        self.take_idle_frame()
        if flags & frames.ACK:
            return
        self._connection.write(frames.SETTINGS_ACK)
        self._apply(frames.read_settings(payload))

    def _apply(self, settings: Iterable[tuple[int, int]]) -> None:
        first_window = -1
        for setting, value in settings:
            if setting == frames.INITIAL_WINDOW_SIZE:
                if value > frames.LARGEST_WINDOW:
                    raise ConnectionFault(frames.FLOW_CONTROL_ERROR, _WINDOW_OVERFLOW)
                first_window = value  # the last one counts
            elif setting == frames.MAX_FRAME_SIZE:
                if not frames.DEFAULT_FRAME_SIZE <= value <= frames.LARGEST_FRAME_SIZE:
                    raise ConnectionFault(
                        frames.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE out of range"
                    )
                self._connection.frame_size = value
            elif setting == frames.ENABLE_PUSH and value > 1:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH must be 0 or 1")
        if first_window >= 0:
            self._set_first_window(first_window)

    def _set_first_window(self, value: int) -> None:
        if not self._visits.spend(len(self._connection.streams)):
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many changes of all windows")
        connection = self._connection
        more, connection.first_window = value - connection.first_window, value
        for stream in list(self._connection.streams.values()):
            stream.window += more
            if stream.window > frames.LARGEST_WINDOW:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, _WINDOW_OVERFLOW)
            self._connection.has_room(stream)

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PING must be on stream 0")
        if len(payload) != 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING has the wrong length")
        if flags & frames.ACK:
            if payload == FAREWELL:
                self._connection.refuse_streams()
            return
        connection = self._connection
        if self._pings.is_one_too_many(bool(connection.streams), connection.sent_count):
            # gRPC's clients know this text, and ping less from then on
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too_many_pings")
        connection.write(frames.ping(payload, frames.ACK))

    def _on_window(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE has the wrong length")
        more = int.from_bytes(payload, "big") & frames.LAST_STREAM
        connection = self._connection
        if number == 0:
            connection.window += more
            if not more:
                raise ConnectionFault(
                    frames.PROTOCOL_ERROR, "WINDOW_UPDATE increment must not be 0"
                )
            if connection.window > frames.LARGEST_WINDOW:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, _WINDOW_OVERFLOW)
            if connection.turns:
                connection.go_on()
            return
        stream = connection.streams.get(number)
        if stream is None:
            connection.check_known(number)
            self.take_idle_frame()
            return
        stream.window += more
        if not more or stream.window > frames.LARGEST_WINDOW:
            code = frames.FLOW_CONTROL_ERROR if more else frames.PROTOCOL_ERROR
            connection.refuse(stream, code)
        elif stream.outgoing:
            connection.has_room(stream)
