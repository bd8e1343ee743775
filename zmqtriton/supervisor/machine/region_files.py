"""The files of clients' shared memory: opened once, checked, and kept for later frontends.

Opens nothing but regular files directly in /dev/shm, creates none, and never waits for one.
"""

from __future__ import annotations

import os
import resource
import stat

from zmqtriton.supervisor.actions import OpenRegion
from zmqtriton.supervisor.control.regions import open_error
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError

_DIRECTORY = "/dev/shm"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class RegionFiles:
    """The open descriptors by the numbers of the regions."""

    def __init__(self, directory: str = _DIRECTORY) -> None:
        self._directory = directory
        self._descriptors: dict[int, int] = {}
        #: Each process holds one descriptor for each region; clients must not use up all of them.
        self._limit = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def open(self, region: OpenRegion) -> ZmqTritonError | None:
        """Open a region's file; return why that is impossible, or None."""
        if len(self._descriptors) >= self._limit:
            return Unavailable(
                f"{self._limit} shared memory regions are registered, more cannot be"
            )
        try:
            descriptor = os.open(os.path.join(self._directory, region.file), _FLAGS)
        except (OSError, ValueError):
            return open_error(region.key)
        error = _check(descriptor, region)
        if error is None:
            self._descriptors[region.number] = descriptor
        else:
            os.close(descriptor)
        return error

    def descriptor(self, number: int) -> int | None:
        return self._descriptors.get(number)

    def open_read_only(self, number: int) -> int | None:
        """Open the region again for a caller that must not write to it."""
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            return None
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self, number: int) -> None:
        descriptor = self._descriptors.pop(number, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        for number in list(self._descriptors):
            self.close(number)


def _check(descriptor: int, region: OpenRegion) -> ZmqTritonError | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return open_error(region.key)
    if region.offset + region.size > status.st_size:
        text = f"failed to register shared memory region '{region.name}': invalid args"
        return InvalidArgument(text)
    return None
