"""The registry of shared-memory segments: created on request, and opened for their readers.

A segment has no name, and only registered segments can be opened. The registry reads and writes
none of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from zmqtriton.config.parameters import MAX_SEGMENT_BYTES, NO_QUOTA, Quota
from zmqtriton.host import capacity
from zmqtriton.host.sealed_memory import anonymous_memory
from zmqtriton.supervisor.machine.memory.region_files import RegionFiles
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.reasons import Kind, Reason

#: The messages that this module handles.
SEGMENT_MESSAGES = (wire.CreateSegment, wire.OpenSegment, wire.FreeSegment)

#: The signal of a process that reads what is no more in its file.
_TRUNCATED = "SIGBUS"

#: Maximum size in bytes of a handle, which opens memory on a GPU.
_MAX_HANDLE = 256
_INVALID_HANDLE = "The handle is not of memory on a GPU."

#: Bytes of the kernel's unit for the memory that a file takes (st_blocks).
_BLOCK_BYTES = 512

#: Sends a message to the process with this serial, with a descriptor or None.
SendMessage = Callable[[int, Any, int | None], None]


class _Segment(NamedTuple):
    #: -1 for GPU memory, which has a handle instead.
    descriptor: int
    size: int
    handle: bytes
    #: The serials of the living processes that have it mapped.
    readers: set[int]
    #: True if only the memory counts that its owner has used so far; its size is a limit.
    is_gradual: bool


class SegmentRegistry:
    def __init__(
        self,
        budget: int,
        send: SendMessage,
        max_segments: int | None = None,
        regions: RegionFiles | None = None,
    ) -> None:
        """Set the limits: `budget` in bytes, and segments, since each costs a descriptor.

        Without `max_segments`, the descriptors of this process are the limit.
        """
        self._budget = budget
        self._send = send
        self._max_segments = max_segments or capacity.max_segments(capacity.descriptor_limit())
        self._segments: dict[int, dict[int, _Segment]] = {}
        #: Bytes of all segments except gradual ones.
        self._total = 0
        self._gradual: set[int] = set()
        self._regions = regions
        #: Processes that have mapped a region, and their owners, by region.
        self._region_readers: dict[int, set[tuple[int, int]]] = {}
        #: The sizes and handles of those that lie on a GPU.
        self._region_handles: dict[int, tuple[int, bytes]] = {}
        #: The models of owners whose models are limited.
        self._model_of: dict[int, str] = {}
        #: Number of times that a limit has refused a segment, by model.
        self.refusals: dict[str, int] = {}

    @property
    def bytes_by_owner(self) -> Mapping[int, int]:
        """Return the bytes by the serial number of their owner."""
        return {owner: self.bytes_of(owner) for owner in self._segments}

    def bytes_of(self, owner: int) -> int:
        return sum(map(_host_bytes, self._segments.get(owner, {}).values()))

    def bytes_of_model(self, model: str) -> int:
        """Return the bytes of a limited model, including its dead processes'."""
        return sum(self.bytes_of(o) for o, name in self._model_of.items() if name == model)

    @property
    def count(self) -> int:
        return sum(map(len, self._segments.values()))

    # ------------------------------------------------------------- messages

    def handle_message(self, serial: int, message: Any, quota: Quota = NO_QUOTA) -> None:
        """Handle a message of a process, of SEGMENT_MESSAGES; `quota` is its model's."""
        match message:
            case wire.CreateSegment():
                self._create_segment(serial, message, quota)
            case wire.OpenSegment():
                self._open_segment(serial, message)
            case wire.FreeSegment():
                self._free_segment(serial, message.segment)

    def _create_segment(self, serial: int, request: wire.CreateSegment, quota: Quota) -> None:
        number, size, handle, is_gradual = request
        own = self._segments.setdefault(serial, {})
        if quota.max_segment_bytes:
            self._model_of[serial] = quota.model
        # GPU memory takes nothing of the budget.
        is_odd = len(handle) > _MAX_HANDLE
        reason = (
            _INVALID_HANDLE if is_odd else self._refusal(own, number, size, 0 if handle else size)
        )
        if not (reason or handle) and quota.max_segment_bytes:
            reason = self._quota_refusal(quota, size)
        descriptor = -1
        if not (reason or handle):
            try:
                descriptor = anonymous_memory(size)
            except OSError as error:
                reason = error.strerror or str(error)
                if error.errno == errno.EFBIG:
                    reason += " (see ulimit -f)"
        if reason:
            self._send(serial, wire.SegmentCreated(number, Unavailable.number, reason), None)
        else:
            # what a limited model has is counted in full, whatever its processes say
            is_gradual = is_gradual and not (handle or quota.max_segment_bytes)
            own[number] = segment = _Segment(descriptor, size, handle, set(), bool(is_gradual))
            if is_gradual:
                self._gradual.add(descriptor)
            else:
                self._total += _host_bytes(segment)
            self._send(serial, wire.SegmentCreated(number, 0, ""), None if handle else descriptor)

    def _refusal(self, own: Mapping[int, _Segment], number: int, size: int, host_bytes: int) -> str:
        """Return why a process may not have this further segment; "" if it may.

        A process may have no more than then remains for all others together. So one process alone
        gets up to a half of the budget, two get up to a third each, and a new one always gets some.
        """
        if number in own or size < 1:
            return "The segment is not a new one."
        if self.count >= self._max_segments:
            return f"The server has {self.count} segments already."
        total = self._total + sum(map(_made_bytes, self._gradual))
        left = self._budget - total - host_bytes
        if host_bytes and sum(map(_host_bytes, own.values())) + host_bytes > left:
            return (
                f"Tensors have {total} bytes of memory by now, of {self._budget} in all, "
                "and one process may not have more than would be left for the others."
            )
        return ""

    def _quota_refusal(self, quota: Quota, size: int) -> str:
        """Return why a model may not have these further bytes; "" if it may have them."""
        held = self.bytes_of_model(quota.model)
        if held + size <= quota.max_segment_bytes:
            return ""
        self.refusals[quota.model] = self.refusals.get(quota.model, 0) + 1
        return (
            f"Model '{quota.model}' may have {quota.max_segment_bytes} bytes of shared memory "
            f"({MAX_SEGMENT_BYTES}), and has {held}."
        )

    def _open_segment(self, serial: int, request: wire.OpenSegment) -> None:
        if request.segment >= REGIONS_FROM:
            self._open_client_region(serial, request)
            return
        segment = self._segments.get(request.owner, {}).get(request.segment)
        if segment is None:
            self._send(serial, wire.SegmentOpened(*request, 0), None)
        else:
            segment.readers.add(serial)
            reply = wire.SegmentOpened(*request, segment.size, segment.handle)
            self._send(serial, reply, None if segment.handle else segment.descriptor)

    def _open_client_region(self, serial: int, request: wire.OpenSegment) -> None:
        number = request.segment - REGIONS_FROM
        on_gpu = self._region_handles.get(number)
        if on_gpu is not None:
            self._region_readers.setdefault(number, set()).add((serial, request.owner))
            self._send(serial, wire.SegmentOpened(*request, *on_gpu), None)
            return
        lent = None if self._regions is None else self._regions.lend(number)
        if lent is None:
            self._send(serial, wire.SegmentOpened(*request, 0), None)
            return
        self._region_readers.setdefault(number, set()).add((serial, request.owner))
        size = os.fstat(lent.descriptor).st_size
        # an empty file is there, too
        opened = wire.SegmentOpened(*request, max(1, size), is_copied=int(lent.is_copied))
        self._send(serial, opened, lent.descriptor)
        os.close(lent.descriptor)

    def add_region_on_gpu(self, number: int, size: int, handle: bytes) -> None:
        """Keep the handle of a client's memory for the processes that will open it."""
        self._region_handles[number] = size, handle

    def region_closed(self, number: int) -> set[int]:
        """Notify a closed region's readers, and return them; they keep it while they read it."""
        self._region_handles.pop(number, None)
        readers = self._region_readers.pop(number, set())
        for reader, owner in readers:
            self._send(reader, wire.SegmentOpened(owner, REGIONS_FROM + number, 0), None)
        return {reader for reader, _ in readers}

    def explain_death(self, serial: int, reason: Reason) -> Reason:
        """Return the reason of a death, which may be a client's region that was truncated.

        Stubs do not map such regions any more. Called before process_died().
        """
        if self._regions is None or reason.values.get("signal") != _TRUNCATED:
            return reason
        read = [
            number
            for number, readers in self._region_readers.items()
            if any(reader == serial for reader, _ in readers)
        ]
        suspects, is_certain = self._regions.suspect(read)
        if not suspects:
            return reason
        for number in suspects:
            self.region_closed(number)
        names = ", ".join(f"'{name}'" for name in sorted(suspects.values()))
        because = "because" if is_certain else "perhaps because"
        text = f"{reason.text}, {because} its client has truncated shared memory: {names}"
        return Reason.of(Kind.REGION_TRUNCATED, text, reason, regions=names)

    def _free_segment(self, owner: int, number: int) -> None:
        segment = self._segments.get(owner, {}).pop(number, None)
        if segment is not None:
            if segment.is_gradual:
                self._gradual.remove(segment.descriptor)
            else:
                self._total -= _host_bytes(segment)
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
            for reader in segment.readers:
                self._send(reader, wire.SegmentOpened(owner, number, 0), None)

    # ---------------------------------------------------------------- deaths

    def process_died(self, serial: int) -> None:
        """Record a death. Others may still open the process's segments until keep() decides.

        Memory on a GPU is gone with its owner.
        """
        for segments in self._segments.values():
            for segment in segments.values():
                segment.readers.discard(serial)
        for readers in self._region_readers.values():
            readers.difference_update([who for who in readers if who[0] == serial])
        self.keep(
            serial, [n for n, own in self._segments.get(serial, {}).items() if not own.handle]
        )

    def keep(self, owner: int, numbers: Collection[int]) -> None:
        """Keep the segments of a dead process that others still read, and free the rest."""
        own = self._segments.get(owner, {})
        for number in own.keys() - numbers:
            self._free_segment(owner, number)
        if not own:
            self._segments.pop(owner, None)
            self._model_of.pop(owner, None)

    def close(self) -> None:
        for serial in list(self._segments):
            self.keep(serial, ())


def _host_bytes(segment: _Segment) -> int:
    if segment.handle:
        return 0
    return _made_bytes(segment.descriptor) if segment.is_gradual else segment.size


def _made_bytes(descriptor: int) -> int:
    """Return the number of bytes of a file that are in memory."""
    return os.fstat(descriptor).st_blocks * _BLOCK_BYTES
