"""The supervisor's side of large tensors, and a frontend's, for a stub's memory."""

from __future__ import annotations

import os
import threading
from typing import Any

from tests.support.segments import segment
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Arena
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.mappings import REGIONS_FROM, Mappings
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import Memory, StubSettings
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.supervisor_client import SupervisorClient
from zmqtriton_stub.watch import Watch

#: A client's region.
REGION = REGIONS_FROM + 1
BOOTSTRAP = wire.Bootstrap(9, bytes(16), "stub", "/", 1, encode(StubSettings()))


def make_client(lifeline: Lifeline, subject: Any = None) -> SupervisorClient:
    """Return the stub's end of a lifeline whose end is of no interest."""
    return SupervisorClient(lifeline, Watch(), lambda: None, lambda: subject)


class FakeLine:
    """Stands for the connection to the broker: keeps the blocks that are released."""

    def __init__(self) -> None:
        self.released: list[wire.Block] = []

    def send(self, frames: list[bytes]) -> None:
        self.released += wire.decode(frames[0]).blocks


class FakeSupervisor:
    """Answers what it is asked, in a thread of its own; owns a frontend's arena."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self._stub_lifeline = Lifeline(theirs)
        self.client = make_client(self._stub_lifeline)
        self.line = FakeLine()
        self.released = self.line.released
        self.memory = self.make_memory()
        self.refusal = ""
        self.freed_segments: list[int] = []
        #: What others see of the stub's arena.
        self.mappings = Mappings(is_private=False)
        self.frontend = Arena(3)
        self._segments: dict[int, int] = {}
        #: Regions that must not be mapped.
        self.copied: set[int] = set()
        self._clients: list[int] = []
        #: The stub's own.
        self.stub_segments: dict[int, int] = {}
        self.lifeline = Lifeline(ours)
        self._thread = threading.Thread(target=self._answer_all)
        self._thread.start()

    def make_memory(self, settings: Memory | None = None, **more: Any) -> TensorMemory:
        line: Any = self.line
        return TensorMemory(self.client, line, BOOTSTRAP.serial, settings or Memory(), **more)

    def _answer_all(self) -> None:
        while not self.lifeline.ended:
            self.lifeline.wait()
            for message, _ in self.lifeline.receive():
                self._answer(message)

    def _answer(self, message: Any) -> None:
        if isinstance(message, wire.CreateSegment) and self.refusal:
            self.lifeline.send(
                wire.SegmentCreated(message.segment, Unavailable.number, self.refusal)
            )
        elif isinstance(message, wire.CreateSegment):
            descriptor = segment(message.size)
            self.stub_segments[message.segment] = os.dup(descriptor)
            self.mappings.add(9, message.segment, os.dup(descriptor))
            self.lifeline.send(wire.SegmentCreated(message.segment, 0, ""), descriptor)
            os.close(descriptor)
        elif isinstance(message, wire.OpenSegment):
            held = self._segments.get(message.segment)
            size = 0 if held is None else os.fstat(held).st_size
            descriptors = [] if held is None else [held]
            is_copied = int(message.segment in self.copied)
            opened = wire.SegmentOpened(*message, size, is_copied=is_copied)
            self.lifeline.send(opened, *descriptors)
        elif isinstance(message, wire.FreeSegment):
            self.freed_segments.append(message.segment)

    def write(self, data: bytes) -> wire.Reference:
        """A tensor of a frontend's."""
        allocation = self.frontend.allocate(len(data))
        if allocation is None:
            request = self.frontend.segment_request(len(data))
            descriptor = self._segments[request.segment] = segment(request.size)
            self.frontend.add(request, os.dup(descriptor))
            allocation = self.frontend.allocate(len(data))
            assert allocation is not None
        allocation.view[:] = data
        return allocation.reference

    def lend_region(self, data: bytes, *, is_read_only: bool = False) -> int:
        """The memory of a client, whose region is the segment REGION; return its descriptor."""
        descriptor = self._segments[REGION] = os.memfd_create("client", os.MFD_CLOEXEC)
        os.pwrite(descriptor, data, 0)
        if is_read_only:
            self._segments[REGION] = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
            self._clients.append(descriptor)
        return descriptor

    def read(self, reference: wire.Reference) -> bytes:
        [array] = self.mappings.open([reference])
        return array.tobytes()

    def close(self) -> None:
        self._stub_lifeline.close()
        self._thread.join()
        self.lifeline.close()
        self.memory.mappings.close()
        self.mappings.close()
        for descriptor in {*self._segments.values(), *self.stub_segments.values(), *self._clients}:
            os.close(descriptor)
