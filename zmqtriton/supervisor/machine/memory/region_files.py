"""The files of clients' shared memory: opened once, checked, and kept for later frontends.

Opens only regular files directly in /dev/shm, creates none, and never waits for one. A client gets
only files that it could open itself, although the server opens them with its own rights. A file
that a client truncates kills the processes that have mapped it. Stubs may map a file if those who
can truncate it could kill the stubs anyway, until the file has killed one.
"""

from __future__ import annotations

import logging
import os
import resource
import stat
from collections.abc import Iterable
from typing import NamedTuple

from zmqtriton.supervisor.actions import OpenRegion
from zmqtriton.supervisor.control.regions import open_error
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError

_log = logging.getLogger(__name__)

_DIRECTORY = "/dev/shm"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
#: The rights of others to write; with an access control list, the most that it gives anybody.
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Rights of a file that all users can read and write. The group needs them, too: without them its
#: members could not.
_FOR_ALL = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_ROOT = 0


class LentFile(NamedTuple):
    """A copy of a region's descriptor, for a stub."""

    descriptor: int
    #: True if it must be read by the descriptor.
    is_copied: bool


class Suspects(NamedTuple):
    """Regions that may have killed a stub because a client has truncated them."""

    #: Names of the regions by number.
    names: dict[int, str]
    is_certain: bool


class _File:
    def __init__(self, region: OpenRegion, descriptor: int, *, can_be_mapped: bool) -> None:
        self.name = region.name
        self.end = region.offset + region.size
        self.descriptor = descriptor
        self.can_be_mapped = can_be_mapped
        #: True if the region may have killed a stub; stubs do not map it any more.
        self.is_suspect = False

    @property
    def is_cut_short(self) -> bool:
        return os.fstat(self.descriptor).st_size < self.end


class RegionFiles:
    """The open descriptors by the numbers of the regions."""

    def __init__(
        self, directory: str = _DIRECTORY, *, trusts_all: bool = False, is_read_only: bool = False
    ) -> None:
        """Set up; stubs may write to no region if `is_read_only`, and map all if `trusts_all`.

        The former is for stubs of other users, who have no right to clients' memory of their own.
        With the latter, a client gets any file.
        """
        self._directory = directory
        self._trusts_all = trusts_all
        self._is_read_only = is_read_only
        self._files: dict[int, _File] = {}
        self._has_warned = False
        #: Each process holds one descriptor for each region; clients must not use up all of them.
        self._limit = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def open(self, region: OpenRegion) -> ZmqTritonError | bool:
        """Open a region's file; return whether stubs may map it, or the error."""
        if len(self._files) >= self._limit:
            return Unavailable(
                f"{self._limit} shared memory regions are registered already: unregister some"
            )
        try:
            descriptor = os.open(os.path.join(self._directory, region.file), _FLAGS)
        except (OSError, ValueError):
            return open_error(region.key)
        status = os.fstat(descriptor)
        error = _check(status, region)
        if error is None and not (self._trusts_all or is_file_of(status, region.user)):
            self._warn(region)
            error = open_error(region.key)
        if error is not None:
            os.close(descriptor)
            return error
        can_be_mapped = self._trusts_all or _is_own(status)
        self._files[region.number] = _File(region, descriptor, can_be_mapped=can_be_mapped)
        return can_be_mapped

    def _warn(self, region: OpenRegion) -> None:
        if not self._has_warned:  # only once: clients must not fill the log
            self._has_warned = True
            _log.warning(
                "refused to register '%s/%s' for %s: the file is another's, and not readable and "
                "writable for all. --trust-client-shm=true allows all files.",
                self._directory,
                region.file,
                f"user {region.user}" if region.user >= 0 else "an unknown user",
            )

    def descriptor(self, number: int) -> int | None:
        file = self._files.get(number)
        return None if file is None else file.descriptor

    def lend(self, number: int) -> LentFile | None:
        """Open a region for a stub; None if there is no such region for stubs."""
        file = self._files.get(number)
        if file is None or not file.can_be_mapped:
            return None
        if self._is_read_only:
            path = f"/proc/self/fd/{file.descriptor}"
            return LentFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), file.is_suspect)
        return LentFile(os.dup(file.descriptor), file.is_suspect)

    def suspect(self, numbers: Iterable[int]) -> Suspects:
        """Let stubs no longer map regions that may have killed one.

        These are the truncated ones; or all if none is truncated, since a client may have restored
        one.
        """
        files = {number: self._files[number] for number in numbers if number in self._files}
        cut = {number: file for number, file in files.items() if file.is_cut_short}
        suspects = cut or files
        for file in suspects.values():
            file.is_suspect = True
        return Suspects({n: file.name for n, file in suspects.items()}, is_certain=bool(cut))

    def close(self, number: int) -> None:
        file = self._files.pop(number, None)
        if file is not None:
            os.close(file.descriptor)

    def close_all(self) -> None:
        for number in list(self._files):
            self.close(number)


def _check(status: os.stat_result, region: OpenRegion) -> ZmqTritonError | None:
    if not stat.S_ISREG(status.st_mode):
        return open_error(region.key)
    if region.offset + region.size > status.st_size:
        return InvalidArgument(
            f"failed to register shared memory region '{region.name}': invalid args"
        )
    return None


def is_file_of(status: os.stat_result, user: int, own_user: int | None = None) -> bool:
    """Return whether a user could open a file that this server, of `own_user`, has opened.

    An unknown user, of another machine or a container, can open the same files as the server's
    user, unless the server's user is root.
    """
    own_user = os.geteuid() if own_user is None else own_user
    if user in (_ROOT, own_user) or (user < 0 and own_user != _ROOT):
        return True
    return status.st_uid == user or status.st_mode & _FOR_ALL == _FOR_ALL


def _is_own(status: os.stat_result) -> bool:
    """True if only this server's user and root can truncate it: they could also kill stubs."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & _WRITABLE_BY_OTHERS
