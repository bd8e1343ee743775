"""What brokers were told and what of it still holds, so that the next one can be told the same.

Kept by the introductions, through which everything to the broker goes. A stub's death stays in here
until a broker has had time to pass on what followed from it: only so does the next one know that
what the stub had may have been executed. A generation that has ended stays too: a request may still
name it, which its successor takes. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire

#: What a broker knew for so long before it died has reached everybody.
SETTLED_S = 1.0
#: Generations that have ended and may still be named.
_ENDED = 64


class Replay:
    def __init__(self) -> None:
        self.expected: dict[int, wire.ExpectPeer] = {}
        self._served: dict[int, wire.AddGeneration] = {}
        self._attached: dict[int, wire.AttachInstance] = {}
        #: By number of the generation and of the stub, if only that.
        self._retired: dict[tuple[int, int], wire.Retire] = {}
        #: Of stubs that were attached.
        self._gone: dict[int, wire.PeerDied] = {}
        #: Of generations, oldest first.
        self._removed: dict[int, wire.RemoveGeneration] = {}
        #: When a broker had seen those.
        self._seen_s: dict[int, float] = {}

    def note(self, message: Any) -> None:
        """It is told to the broker, or would be if there were one."""
        note = _NOTES.get(type(message))
        if note is not None:
            note(self, message)

    def _expect(self, message: wire.ExpectPeer) -> None:
        self.expected[message.serial] = message

    def _serve(self, message: wire.AddGeneration) -> None:
        self._served[message.generation] = message

    def _attach(self, message: wire.AttachInstance) -> None:
        self._attached[message.serial] = message

    def _retire(self, message: wire.Retire) -> None:
        self._retired[message] = message

    def _remove(self, message: wire.RemoveGeneration) -> None:
        number = message.generation
        if number not in self._served:
            return
        for entry in [entry for entry in self._retired if entry[0] == number]:
            del self._retired[entry]
        self._removed[number] = message
        if len(self._removed) > _ENDED:
            oldest = next(iter(self._removed))
            del self._removed[oldest], self._served[oldest]
            for serial, attached in list(self._attached.items()):
                if attached.generation == oldest:
                    del self._attached[serial]
                    if serial in self._gone:
                        self._bury(serial)

    def _go(self, message: wire.PeerDied) -> None:
        if message.serial in self._attached:
            self._gone[message.serial] = message
        else:
            self._bury(message.serial)

    def _bury(self, serial: int) -> None:
        for entries in (self.expected, self._attached, self._gone, self._seen_s):
            entries.pop(serial, None)
        for entry in [entry for entry in self._retired if entry[1] == serial]:
            del self._retired[entry]

    def is_alive(self, serial: int) -> bool:
        return serial in self.expected and serial not in self._gone

    def death_seen(self, serial: int, now_s: float) -> None:
        """A broker knows of the death."""
        if serial in self._gone:
            self._seen_s[serial] = now_s
        self.forget_settled(now_s)

    def forget_settled(self, now_s: float) -> None:
        """Deaths that a broker had known of for long enough."""
        for serial, seen_s in list(self._seen_s.items()):
            if now_s - seen_s > SETTLED_S:
                self._bury(serial)

    def everything(self) -> list[Any]:
        """For a broker that knows nothing yet, but for the generations that are retired."""
        entries: list[dict[int, Any]] = [
            *(self.expected, self._served, self._attached, self._gone, self._removed)
        ]
        return [message for messages in entries for message in messages.values()]

    def retired(self) -> list[wire.Retire]:
        """For later: a broker that had not heard of their requests yet would call them drained."""
        return list(self._retired.values())


_NOTES: dict[type[Any], Callable[[Replay, Any], None]] = {
    wire.ExpectPeer: Replay._expect,
    wire.AddGeneration: Replay._serve,
    wire.AttachInstance: Replay._attach,
    wire.Retire: Replay._retire,
    wire.RemoveGeneration: Replay._remove,
    wire.PeerDied: Replay._go,
}
