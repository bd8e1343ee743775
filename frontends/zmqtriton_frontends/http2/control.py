"""The frames without request data: settings, windows, pings, resets; and their limits.

The base of connection.py's Connection. A frame may cost the server more work than its client, so
there is a budget for each kind of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import Budget, Clock, PingRules, Pings
from zmqtriton_frontends.http2.reading import ConnectionFault, Handler
from zmqtriton_frontends.http2.stream import Http2Stream, Sending

#: Frames that a client may send without asking for anything by them, and how many more per second.
_IDLE_FRAMES, _IDLE_FRAMES_PER_S = 1000, 100
#: Calls that it may begin and reset, or have reset by breaking a rule.
_RESETS, _RESETS_PER_S = 10_000, 1000
#: Streams that are looked at because it changes the window of all.
_VISITS, _VISITS_PER_S = 100_000, 10_000
#: The data of the ping whose answer shows that a client has read the GOAWAY.
FAREWELL = b"farewell"

_WINDOW_OVERFLOW = "flow-control window overflow"


class ControlFrames(Sending):
    """The sending half of a connection, and the control frames that change its state."""

    def __init__(self, wake: Callable[[], object], pings: PingRules, clock: Clock) -> None:
        super().__init__(wake)
        self._pings = Pings(pings, clock)
        self._idle_frames = Budget(_IDLE_FRAMES, _IDLE_FRAMES_PER_S, clock)
        self._resets = Budget(_RESETS, _RESETS_PER_S, clock)
        self._visits = Budget(_VISITS, _VISITS_PER_S, clock)
        self._last_stream = 0
        #: The client's preface and settings have come.
        self.has_begun = False
        #: A GOAWAY was sent to end the connection gently, but the client may not have read it yet.
        self._is_leaving = False
        #: New streams are refused.
        self.is_closing = False
        by_kind = {
            frames.PRIORITY: self._on_priority,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window,
        }
        #: The handler of each kind of frame, at its number.
        self._handlers: list[Handler] = [by_kind.get(n, self._on_unknown) for n in range(256)]

    def _take_idle_frame(self) -> None:
        """Count a frame without effect."""
        if not self._idle_frames.spend():
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many frames that carry no request")

    def _spend_reset(self) -> None:
        """Count a reset call, whether the client reset it or caused the reset."""
        if not self._resets.spend():
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many calls that were reset")

    def _refuse_new(self, number: int, code: int) -> None:
        """Reset a stream that was not begun here."""
        self._spend_reset()
        self.leave_early(number)
        self.write(frames.reset(number, code))

    def _check_known(self, number: int) -> None:
        if number == 0 or number % 2 == 0 or number > self._last_stream:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "frame on an idle stream")

    def _check_left_early(self, number: int) -> None:
        """Raise ConnectionFault unless a closed stream ended here before its client ended it."""
        if number not in self.left_early:
            raise ConnectionFault(frames.STREAM_CLOSED, "frame on a closed stream")

    def refuse(self, stream: Http2Stream, code: int) -> None:
        """Refuse a stream after a fault of its client; it counts as one of the client's resets."""
        self._spend_reset()
        self.reset(stream, code)
        stream.on_reset()

    def refuse_streams(self) -> None:
        """Refuse new streams: after leave(), once the client knows or had the time to."""
        if self._is_leaving and not self.is_closing:
            self.is_closing = True
            self.write(frames.goaway(self._last_stream, frames.NO_ERROR))

    # --------------------------------------------------------------- the handlers

    def _on_unknown(self, flags: int, number: int, payload: bytes) -> None:
        self._take_idle_frame()

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM has the wrong length")
        self._check_known(number)
        self._spend_reset()
        stream = self.streams.get(number)
        if stream is not None:
            stream.was_ended = True  # nothing more may come
            self.forget(stream)
            stream.on_reset()

    def _on_priority(self, flags: int, number: int, payload: bytes) -> None:
        if number == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY must be on a stream")
        if len(payload) != 5:
            stream = self.streams.get(number)
            if stream is not None:
                self.refuse(stream, frames.FRAME_SIZE_ERROR)
        self._take_idle_frame()

    def _on_push(self, flags: int, number: int, payload: bytes) -> None:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a client must not send PUSH_PROMISE")

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) < 8:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "malformed GOAWAY")
        self._take_idle_frame()

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS must be on stream 0")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS has the wrong length")
        self.has_begun = True
        self._take_idle_frame()
        if flags & frames.ACK:
            return
        self.write(frames.SETTINGS_ACK)
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
                self.frame_size = value
            elif setting == frames.ENABLE_PUSH and value > 1:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH must be 0 or 1")
        if first_window >= 0:
            self._set_first_window(first_window)

    def _set_first_window(self, value: int) -> None:
        if not self._visits.spend(len(self.streams)):
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many changes of all windows")
        more, self.first_window = value - self.first_window, value
        for stream in list(self.streams.values()):
            stream.window += more
            if stream.window > frames.LARGEST_WINDOW:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, _WINDOW_OVERFLOW)
            self.has_room(stream)

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PING must be on stream 0")
        if len(payload) != 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING has the wrong length")
        if flags & frames.ACK:
            if payload == FAREWELL:
                self.refuse_streams()
            return
        if self._pings.is_one_too_many(bool(self.streams), self.sent_count):
            # gRPC's clients know this text, and ping less from then on
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too_many_pings")
        self.write(frames.ping(payload, frames.ACK))

    def _on_window(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE has the wrong length")
        more = int.from_bytes(payload, "big") & frames.LAST_STREAM
        if number == 0:
            self.window += more
            if not more:
                raise ConnectionFault(
                    frames.PROTOCOL_ERROR, "WINDOW_UPDATE increment must not be 0"
                )
            if self.window > frames.LARGEST_WINDOW:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, _WINDOW_OVERFLOW)
            if self.turns:
                self.go_on()
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number)
            self._take_idle_frame()
            return
        stream.window += more
        if not more or stream.window > frames.LARGEST_WINDOW:
            code = frames.FLOW_CONTROL_ERROR if more else frames.PROTOCOL_ERROR
            self.refuse(stream, code)
        elif stream.outgoing:
            self.has_room(stream)
