"""System calls that fail: each call, with each error, in each process, once and for a second.

After each the server must be whole within seconds: the same supervisor, every role, and models that
answer, load and unload. `python -m tests.faults.failing_calls` sweeps all of them.
"""

from __future__ import annotations

import errno
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.faults import deaths
from tests.faults.load import Load
from tests.support.failing import FailingCalls
from tests.support.server import Server, ask_add_sub
from tests.support.tools import parse_options
from tests.support.waiting import eventually

MODELS = ("journal", "add_sub")
ROLES = ("supervisor", "broker", "http", "grpc", "metrics", "fork-server", "stub")
WHOLE_WITHIN_S = 10.0
#: As often as a process can call within the second for which its calls fail.
_FOR_A_SECOND = 1_000_000_000

_LATER = (errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
CALLS: dict[str, tuple[int, ...]] = {
    "send": _LATER,
    "sendmsg": _LATER,
    "recv": _LATER,
    "recvmsg": _LATER,
    "accept4": (*_NO_DESCRIPTOR, errno.ENOBUFS, errno.EAGAIN, errno.EINTR, errno.ECONNABORTED),
    "socket": _NO_DESCRIPTOR,
    "socketpair": _NO_DESCRIPTOR,
    "pipe2": _NO_DESCRIPTOR,
    "dup": (errno.EMFILE,),
    "epoll_ctl": (errno.ENOMEM, errno.ENOSPC),
    "epoll_wait": (errno.EINTR,),
    "memfd_create": _NO_DESCRIPTOR,
    "ftruncate": (errno.ENOMEM, errno.ENOSPC, errno.EINTR),
    "mmap": (errno.ENOMEM,),
    "fork": (errno.EAGAIN, errno.ENOMEM),
}


class Fault(NamedTuple):
    role: str
    call: str
    error: int
    #: It fails for a second, and not only once.
    lasts: bool

    def __str__(self) -> str:
        how = "for a second" if self.lasts else "once"
        return f"{self.role}: {self.call} {errno.errorcode[self.error]} {how}"


def all_faults() -> list[Fault]:
    return [
        Fault(role, call, error, lasts)
        for role in ROLES
        for call, errors in CALLS.items()
        for error in errors
        for lasts in (False, True)
        # Python repeats within one call what a signal has interrupted, and no signal comes for ever
        if not (lasts and error == errno.EINTR)
    ]


class Result(NamedTuple):
    fault: Fault
    #: How many calls have failed.
    failed: int
    #: Until the server was whole again.
    whole_ms: float


def _touch(server: Server, is_over: threading.Event) -> None:
    """Do what makes every process call the kernel: connect, load, unload, scrape."""
    while not is_over.is_set():
        for verb in ("unload", "load"):
            with suppress(OSError, ValueError):
                server.control_model(verb, "add_sub")
        with suppress(OSError):
            server.metrics_text()
        is_over.wait(0.02)


def is_whole(server: Server, supervisor: int) -> bool:
    pids = server.pids()
    if pids["supervisor"] != [supervisor] or any(not pids.get(role) for role in ROLES):
        return False
    with suppress(OSError, ValueError):
        if server.control_model("load", "add_sub"):
            return False
        return ask_add_sub(server) == 200 and server.is_ready() and bool(server.metrics_text())
    return False


def sweep(
    server: Server, calls: FailingCalls, faults: Sequence[Fault], chance: random.Random
) -> Iterator[Result]:
    """Inject one fault after another into a running server."""
    supervisor = server.pid
    for fault in faults:
        eventually(lambda: is_whole(server, supervisor), 60, f"whole before {fault}")
        pid = (
            server.stub_pids("journal")[0]
            if fault.role == "stub"
            else server.pids()[fault.role][-1]
        )
        is_over = threading.Event()
        touching = threading.Thread(target=_touch, args=(server, is_over), daemon=True)
        touching.start()
        skip = chance.choice((0, 0, 1, 3, 10))
        times = _FOR_A_SECOND if fault.lasts else 1
        calls.fail(pid, fault.call, fault.error, skip=skip, times=times)
        time.sleep(1.0 if fault.lasts else 0.3)
        failed = calls.stop()
        begun = time.monotonic()
        is_over.set()
        eventually(lambda: is_whole(server, supervisor), 60, f"whole after {fault}")
        touching.join(60)
        assert not touching.is_alive(), f"{fault}: a request got no answer"
        yield Result(fault, failed, (time.monotonic() - begun) * 1000)


@contextmanager
def server_under_load(directory: Path) -> Iterator[tuple[Server, FailingCalls]]:
    """Start a server under load; each request has one right outcome, and none executes twice."""
    calls = FailingCalls(directory)
    try:
        options = ["--model-control-mode=explicit", "--load-model=*"]
        server = Server(directory / "s", MODELS, environment=calls.environment, options=options)
        deaths.use_instances(server)
        with server:
            with Load(server.http_port, clients=4, milliseconds=5, pause_s=0.01) as load:
                yield server, calls
            answered = [o for o in load.answers if o.status not in (0, 500)]
            deaths.check_executed_once(server, answered)
            assert 0 == server.stop(30), "it ends in order"
    finally:
        calls.close()


def main() -> int:
    arguments = parse_options(
        seed=(1, "of their order"), only=("", "faults whose text contains this")
    )
    faults = [fault for fault in all_faults() if arguments.only in str(fault)]
    random.Random(arguments.seed).shuffle(faults)
    results = []
    with (
        tempfile.TemporaryDirectory() as directory,
        server_under_load(Path(directory)) as (server, calls),
    ):
        for result in sweep(server, calls, faults, random.Random(arguments.seed)):
            results.append(result)
            print(f"{result.fault!s:58} {result.failed:8} {result.whole_ms:8.0f} ms")
    late = [r for r in results if r.whole_ms > WHOLE_WITHIN_S * 1000]
    hit = sum(1 for r in results if r.failed)
    slowest = max(results, key=lambda r: r.whole_ms)
    print(
        f"{len(results)} faults, {hit} met a call; "
        f"slowest: {slowest.fault} {slowest.whole_ms:.0f} ms"
    )
    for result in late:
        print(f"MISSED: {result.fault}: {result.whole_ms:.0f} ms")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
