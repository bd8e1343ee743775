"""`sitecustomize` of a server whose processes tell the calls of their loops that may wait.

A loop is known by the thread that it begins to watch its turns. Calls that Python audits
are seen, and stat(); not reads and writes of what is open.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

_EVENTS = {
    "open",
    "import",
    "time.sleep",
    "subprocess.Popen",
    "fcntl.flock",
    "fcntl.lockf",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.gethostbyaddr",
    "socket.getnameinfo",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.stat",
    "os.lstat",
    "os.access",
    "os.statvfs",
    "os.utime",
    "shutil.rmtree",
    "shutil.copyfile",
    "shutil.copytree",
    "shutil.move",
    "glob.glob",
    "tempfile.mkstemp",
    "tempfile.mkdtemp",
    "ctypes.dlopen",
}
_loops: set[tuple[int, int]] = set()
_file = os.open(os.environ["ZT_CALLS_OF_LOOPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _EVENTS and (os.getpid(), threading.get_ident()) in _loops:
        places: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name.startswith("zmqtriton"):
                places.append(f"{name}:{frame.f_code.co_name}")
            frame = frame.f_back
        subject = str(arguments[0]).replace("\t", " ") if arguments else ""
        os.write(_file, f"{os.getpid()}\t{event}\t{subject}\t{' '.join(places)}\n".encode())


def _heard(function: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        _hear(f"os.{function.__name__}", arguments)
        return function(*arguments, **options)

    return call


for _name in ("stat", "lstat", "access", "statvfs"):
    setattr(os, _name, _heard(getattr(os, _name)))

_start = threading.Thread.start


def _start_and_hear(thread: threading.Thread) -> None:
    if thread.name == "turns":
        _loops.add((os.getpid(), threading.get_ident()))
    _start(thread)


threading.Thread.start = _start_and_hear  # type: ignore
sys.addaudithook(_hear)
