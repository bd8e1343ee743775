"""Makes system calls of a server's processes fail, by a library that all of them preload."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

from tests.support.needs import find_tool

_SOURCE = Path(__file__).with_name("calls.c")
_ORDERS = struct.Struct("=5i32s")


class FailingCalls:
    """Give `environment` to the server, then say what fails."""

    def __init__(self, directory: Path) -> None:
        compiler = find_tool("gcc", "cc")
        library = directory / "calls.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
        subprocess.run([*command, "-ldl"], check=True)
        path = directory / "orders"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)
        self.environment = {"LD_PRELOAD": str(library), "ZT_FAILING_CALLS": str(path)}

    def fail(self, pid: int, call: str, error: int, *, skip: int = 0, times: int = 1) -> None:
        """Let calls of one process fail: after so many, and so often."""
        self.stop()
        self._page[: _ORDERS.size] = _ORDERS.pack(pid, error, skip, 0, 0, call.encode())
        struct.pack_into("=i", self._page, 12, times)

    def stop(self) -> int:
        """Let all calls succeed from now on; return how many have failed since fail()."""
        struct.pack_into("=i", self._page, 12, 0)
        return int(_ORDERS.unpack_from(self._page)[4])

    def close(self) -> None:
        self._page.close()
