"""The messages to brokers that still hold, so that the next broker can be told the same.

Kept by `introductions`, through which everything to the broker goes. A stub that was attached stays
here, dead or alive, until a broker says that what it had begun is settled: from a stub that is told
as dead the next broker knows that what it had may have been executed. An ended generation stays,
too: a request may still name it, and its successor takes that. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire

#: How many ended generations may still be named.
_ENDED = 64


class BrokerReplay:
    def __init__(self) -> None:
        self.expected_peers: dict[int, wire.ExpectPeer] = {}
        self._served: dict[int, wire.AddGeneration] = {}
        self._attached: dict[int, wire.AttachInstance] = {}
        #: The serials of those, by generation.
        self._attached_to: dict[int, set[int]] = {}
        #: Retired generations by number, and stubs of others by serial.
        self._retired: dict[int, wire.Retire] = {}
        self._retired_stubs: dict[int, wire.Retire] = {}
        #: The deaths of stubs that were attached.
        self._deaths: dict[int, wire.PeerDied] = {}
        #: Removed generations, oldest first.
        self._removed: dict[int, wire.RemoveGeneration] = {}
        #: The divided models.
        self._splits: dict[str, wire.TrafficSplit] = {}
        #: Retired generations that have answered everything.
        self._settled: set[int] = set()

    def record(self, message: Any) -> None:
        """Record a message that was sent to the broker, or would have been if there were one."""
        note = _NOTES.get(type(message))
        if note is not None:
            note(self, message)

    def _expect(self, message: wire.ExpectPeer) -> None:
        self.expected_peers[message.serial] = message

    def _serve(self, message: wire.AddGeneration) -> None:
        self._served[message.generation] = message
        self._removed.pop(message.generation, None)  # it was given up, and has come back

    def _attach(self, message: wire.AttachInstance) -> None:
        self._attached[message.serial] = message
        self._attached_to.setdefault(message.generation, set()).add(message.serial)

    def _detach(self, serial: int) -> None:
        attached = self._attached.pop(serial, None)
        if attached is not None:
            serials = self._attached_to[attached.generation]
            serials.discard(serial)
            if not serials:
                del self._attached_to[attached.generation]

    def _retire(self, message: wire.Retire) -> None:
        if message.serial:
            self._retired_stubs[message.serial] = message
        else:
            self._retired[message.generation] = message

    def _remove(self, message: wire.RemoveGeneration) -> None:
        number = message.generation
        if number not in self._served:
            return
        self._retired.pop(number, None)
        for serial in [s for s, one in self._retired_stubs.items() if one.generation == number]:
            del self._retired_stubs[serial]
        self._settled.discard(number)
        self._removed[number] = message
        if len(self._removed) > _ENDED:
            oldest = next(iter(self._removed))
            del self._removed[oldest], self._served[oldest]
            for serial in list(self._attached_to.get(oldest, ())):
                self._detach(serial)
                if serial in self._deaths:
                    self._forget_process(serial)

    def _divide(self, message: wire.TrafficSplit) -> None:
        if message.stable:
            self._splits[message.model] = message
        else:
            self._splits.pop(message.model, None)

    def _record_death(self, message: wire.PeerDied) -> None:
        if message.serial in self._attached:
            self._deaths[message.serial] = message
        else:
            self._forget_process(message.serial)

    def _forget_process(self, serial: int) -> None:
        self._detach(serial)
        for entries in (self.expected_peers, self._deaths, self._retired_stubs):
            entries.pop(serial, None)

    def is_alive(self, serial: int) -> bool:
        return serial in self.expected_peers and serial not in self._deaths

    def settle(self, settled: wire.Settled) -> None:
        """Forget what a stub had begun, or all of a generation; a living process stays expected."""
        stubs = [settled.serial]
        if not settled.serial:
            stubs = [*self._attached_to.get(settled.generation, ())]
            if settled.generation in self._retired:
                self._settled.add(settled.generation)
        for serial in stubs:
            self._detach(serial)
            self._retired_stubs.pop(serial, None)
            if serial in self._deaths:
                self._forget_process(serial)

    def all_messages(self) -> list[Any]:
        """Return the messages for a new broker, without the retirements that must wait."""
        entries: list[dict[Any, Any]] = [
            self.expected_peers,
            self._served,
            self._attached,
            self._deaths,
            self._removed,
            self._splits,
            {number: one for number, one in self._retired.items() if number in self._settled},
        ]
        return [message for messages in entries for message in messages.values()]

    def retirements(self) -> list[wire.Retire]:
        """Return the retirements, for later.

        A broker that had not heard of a generation's requests yet would consider it drained.
        """
        # those of settled ones have been told at once: no request is open in them
        open_ones = [one for number, one in self._retired.items() if number not in self._settled]
        return [*open_ones, *self._retired_stubs.values()]


_NOTES: dict[type[Any], Callable[[BrokerReplay, Any], None]] = {
    wire.ExpectPeer: BrokerReplay._expect,
    wire.AddGeneration: BrokerReplay._serve,
    wire.AttachInstance: BrokerReplay._attach,
    wire.Retire: BrokerReplay._retire,
    wire.RemoveGeneration: BrokerReplay._remove,
    wire.PeerDied: BrokerReplay._record_death,
    wire.TrafficSplit: BrokerReplay._divide,
}
