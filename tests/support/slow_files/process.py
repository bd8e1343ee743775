"""The process of a slow file system: FUSE's protocol as far as reading needs it, by threads.

python -m tests.support.slow_files.process SOURCE PLACE

Takes orders on stdin, a line each, and answers each by a line. Unmounts at the end of stdin.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_IN_HEADER = struct.Struct("=IIQQIIIHH")
_OUT_HEADER = struct.Struct("=IiQ")
_ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
_DIRECTORY_ENTRY = struct.Struct("=QQII")
_LOOKUP, _FORGET, _GETATTR, _READLINK, _OPEN, _READ = 1, 2, 3, 5, 14, 15
_STATFS, _RELEASE, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 17, 18, 26, 27, 28, 29
_INTERRUPT, _BATCH_FORGET = 36, 42
_READ_ONLY, _NO_SUID, _DETACH = 1, 2, 2
_ROOT = 1
#: A call about one name of a folder does not wait for one about another.
_PARALLEL = 1 << 18
#: The kernel remembers names for so long; what they name it always asks for.
_NAMES_VALID_S = 3600
_MAX_READ = 1 << 17


class _Delays:
    """The times that calls take, by the folder that they are about; the longest name counts."""

    def __init__(self) -> None:
        self._delays: dict[str, float] = {"": 0.0}
        self._changed = threading.Condition()
        self.waiting = 0

    def set(self, below: str, delay_s: float) -> None:
        with self._changed:
            self._delays[below] = delay_s
            self._changed.notify_all()

    def wait(self, path: str) -> None:
        began_s = time.monotonic()
        with self._changed:
            self.waiting += 1
            while (left_s := self._of(path) - (time.monotonic() - began_s)) > 0:
                self._changed.wait(None if math.isinf(left_s) else left_s)
            self.waiting -= 1

    def _of(self, path: str) -> float:
        fitting = [one for one in self._delays if not one or f"{path}/".startswith(f"{one}/")]
        return self._delays[max(fitting, key=len)]


class _Files:
    """Answers the calls, each by the bytes that follow the header. Raises OSError."""

    def __init__(self, source: str, delays: _Delays) -> None:
        self._source = source
        self._delays = delays
        self._lock = threading.Lock()
        self._paths = {_ROOT: ""}
        self._numbers = {"": _ROOT}
        self.calls: dict[int, Callable[[int, bytes], bytes]] = {
            _LOOKUP: self._look_up,
            _GETATTR: self._attributes,
            _READLINK: self._read_link,
            _OPEN: self._open,
            _OPENDIR: self._open,
            _READ: self._read,
            _READDIR: self._list,
            _RELEASE: self._release,
            _RELEASEDIR: lambda node, _: b"",
            _STATFS: lambda node, _: bytes(80),
        }

    def _place(self, node: int) -> str:
        return os.path.join(self._source, self._paths[node]).rstrip("/")

    def _look_up(self, node: int, body: bytes) -> bytes:
        path = os.path.join(self._paths[node], os.fsdecode(body.rstrip(b"\0")))
        self._delays.wait(path)
        status = os.lstat(os.path.join(self._source, path))
        with self._lock:
            number = self._numbers.setdefault(path, len(self._numbers) + 1)
            self._paths[number] = path
        valid = struct.pack("=QQQQII", number, 0, _NAMES_VALID_S, 0, 0, 0)
        return valid + self._encoded(status, number)

    def _attributes(self, node: int, _: bytes) -> bytes:
        self._delays.wait(self._paths[node])
        return struct.pack("=QII", 0, 0, 0) + self._encoded(os.lstat(self._place(node)), node)

    @staticmethod
    def _encoded(status: os.stat_result, number: int) -> bytes:
        times = [status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]
        return _ATTRIBUTES.pack(
            number,
            status.st_size,
            status.st_blocks,
            *(t // 10**9 for t in times),
            *(t % 10**9 for t in times),
            status.st_mode,
            status.st_nlink,
            status.st_uid,
            status.st_gid,
            0,
            4096,
            0,
        )

    def _read_link(self, node: int, _: bytes) -> bytes:
        self._delays.wait(self._paths[node])
        return os.fsencode(os.readlink(self._place(node)))

    def _open(self, node: int, _: bytes) -> bytes:
        self._delays.wait(self._paths[node])
        place = self._place(node)
        handle = os.open(place, os.O_RDONLY) if stat.S_ISREG(os.lstat(place).st_mode) else 0
        return struct.pack("=QII", handle, 0, 0)

    @staticmethod
    def _read(_: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("=QQI", body)
        return os.pread(handle, size, offset)

    @staticmethod
    def _release(_: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("=Q", body)[0])
        return b""

    def _list(self, node: int, body: bytes) -> bytes:
        self._delays.wait(self._paths[node])
        _, offset, size = struct.unpack_from("=QQI", body)
        listing = b""
        with os.scandir(self._place(node)) as inside:
            entries = sorted(inside, key=lambda entry: entry.name)
        for index, entry in enumerate(entries[offset:], offset + 1):
            name = os.fsencode(entry.name)
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12
            one = _DIRECTORY_ENTRY.pack(index + 1000, index, len(name), kind) + name
            one += bytes(-len(one) % 8)
            if len(listing) + len(one) > size:
                break
            listing += one
        return listing


def _serve(device: int, files: _Files) -> None:
    while True:
        try:
            request = os.read(device, _MAX_READ + 4096)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return  # unmounted
        threading.Thread(target=_answer, args=(device, files, request), daemon=True).start()


def _answer(device: int, files: _Files, request: bytes) -> None:
    _, code, number, node, *_ = _IN_HEADER.unpack_from(request)
    body = request[_IN_HEADER.size :]
    if code in (_FORGET, _BATCH_FORGET, _INTERRUPT):
        return
    error, answer = 0, b""
    try:
        if code == _INIT:
            answer = _begin(body)
        elif code in files.calls:
            answer = files.calls[code](node, body)
        else:
            error = errno.ENOSYS
    except OSError as failure:
        error = failure.errno or errno.EIO
    answer = b"" if error else answer
    try:
        os.write(device, _OUT_HEADER.pack(_OUT_HEADER.size + len(answer), -error, number) + answer)
    except OSError:
        return  # the caller waits no more


def _begin(body: bytes) -> bytes:
    major, minor = struct.unpack_from("=II", body)
    versions = major, min(minor, 31)
    return struct.pack("=IIIIHHI", *versions, 4096, _PARALLEL, 64, 48, 4096) + bytes(36)


def _mount(place: str) -> int:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc: Any = ctypes.CDLL(None, use_errno=True)
    kind, flags = b"fuse.slow", _READ_ONLY | _NO_SUID
    if libc.mount(b"slow", os.fsencode(place), kind, flags, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return device


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main(source: str, place: str) -> None:
    """Serve until stdin ends."""
    delays = _Delays()
    device = _mount(place)
    threading.Thread(target=_serve, args=(device, _Files(source, delays)), daemon=True).start()
    _say("mounted")
    try:
        for line in sys.stdin:
            verb, *words = line.rstrip("\n").split(" ", 2)
            if verb == "delay":
                delays.set(words[1], float(words[0]))
            _say(str(delays.waiting))
    finally:
        ctypes.CDLL(None).umount2(os.fsencode(place), _DETACH)
        os._exit(0)  # with it the kernel's end of the device closes, and calls that wait fail


main(sys.argv[1], sys.argv[2])
