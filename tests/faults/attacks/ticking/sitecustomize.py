"""`sitecustomize` of a server whose processes report how long a thread of theirs could not run.

A thread wakes each millisecond. A late one is reported with the processor time that the process
has used in between: on a busy machine, only as much of its lateness is the interpreter's lock.
"""

from __future__ import annotations

import os
import threading
import time

_LATE_S = 0.02
_file = os.open(os.environ["ZT_TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def _tick() -> None:
    before, used = time.monotonic(), time.process_time()
    while True:
        time.sleep(0.001)
        now, own = time.monotonic(), time.process_time()
        if now - before > _LATE_S:
            late_s = min(now - before, own - used)
            os.write(_file, f"{os.getpid()} {now} {late_s}\n".encode())
        before, used = now, own


def _start() -> None:
    threading.Thread(target=_tick, name="ticks", daemon=True).start()


_start()
os.register_at_fork(after_in_child=_start)
