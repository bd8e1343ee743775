"""Attacks on captures, with figures: `python -m zmqtriton_extras.capture.tests.attacks [NAME]...`.

Beside each attack an honest client asks a model. Prints what became of the attack, how much memory
the processes of HTTP and of captures took at most, what lies on disk, and how long the honest
client waited. Exits with 1 if a bound was broken or an honest request failed.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.standard.attack_watch import MIB, AttackWatch
from tests.support.scraping import read_series
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually
from zmqtriton_extras.capture.frames import END, REQUEST, Frame, encode
from zmqtriton_extras.capture.records import read
from zmqtriton_floor.wire import Tensor

_PATIENCE_S = 300.0
#: The limit of records on disk, and what an attack may make a process take more than it had: the
#: budget of the process twice, and what Python does not give back.
LIMIT_BYTES = 32 * MIB
MAX_MORE_MIB = 320
FP32 = 11


def capturing(directory: Path) -> Server:
    options = (
        "--capture=*",
        f"--capture-to={directory}/captures",
        f"--capture-byte-size={LIMIT_BYTES}",
        f"--runtime-directory={directory}/run",
    )
    models = ["add_sub", "identity_fp32"]
    return Server(directory / "s", models, options=options, frontends=("metrics",))


def captures_of(server: Server) -> Path:
    return server.directory.parent / "captures"


def counts(server: Server, model: str) -> Counter[str]:
    """Return the captures of a model by result."""
    start = f'zmqtriton_captures_total{{model="{model}",result="'
    rows = read_series(server).items()
    return Counter(
        {key.removeprefix(start)[:-2]: int(n) for key, n in rows if key.startswith(start)}
    )


# ------------------------------------------------------------------ the attacks


def _request(number: int, model: str, tensor: Tensor, **more: object) -> bytes:
    details = {
        **{"time_s": 1.8e9, "model": model, "version": 1, "is_decoupled": False, "token": ""},
        **{"request_id": "", "parameters": {}, "outputs": [], "omitted": [], "hashed": []},
        **{"dropped": {}, **more},
    }
    return encode([Frame(REQUEST, number, details, [tensor])])


_ENDED: dict[str, Any] = {"error": None, "duration_ms": 0.1, "stages": {}, "is_cut": False}


@contextmanager
def _as_frontend(server: Server) -> Iterator[socket.socket]:
    """Send frames as a frontend does, but faster, and waiting for room."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(server.directory.parent / "run" / "capture"))
        yield line


def tiny(server: Server, count: int = 1_000_000) -> str:
    """A million captures of one number each."""
    begun = time.monotonic()
    tensor = Tensor("X", FP32, [1], b"\0\0\0\0")
    with _as_frontend(server) as line:
        for first in range(0, count, 100):
            line.sendall(
                b"".join(
                    _request(n, "tiny", tensor) + encode([Frame(END, n, _ENDED)])
                    for n in range(first, first + 100)
                )
            )
        sent_s = time.monotonic() - begun
        eventually(lambda: counts(server, "tiny").total() == count, _PATIENCE_S)
    done = counts(server, "tiny")
    return f"{count} sent in {sent_s:.0f} s, {dict(done)} after {time.monotonic() - begun:.0f} s"


def without_end(server: Server, count: int = 300_000) -> str:
    """Requests that are never answered, with parameters of 1 KB."""
    tensor = Tensor("X", FP32, [1], b"\0\0\0\0")
    with _as_frontend(server) as line:
        for number in range(count):
            line.sendall(_request(number, "endless", tensor, parameters={"p": "x" * 1000}))
    eventually(lambda: counts(server, "endless")["dropped"] == count, _PATIENCE_S)
    return f"all {count} dropped"


def many_files(server: Server, count: int = 30_000) -> str:
    """Tensors that have a file each."""
    tensor = Tensor("../../../X", FP32, [1100], bytes(4400))
    with _as_frontend(server) as line:
        for number in range(count):
            ended = encode([Frame(END, number, _ENDED)])
            line.sendall(_request(number, "files", tensor) + ended)
        eventually(lambda: counts(server, "files").total() == count, _PATIENCE_S)
    files = [path for path in captures_of(server).rglob("*") if path.is_file()]
    return f"{dict(counts(server, 'files'))}, {len(files)} files remain"


def stopped(server: Server, seconds: float = 10.0) -> str:
    """The process does not read any more, while a client sends 4 MiB again and again."""
    [pid] = server.pids()["capture"]
    os.kill(pid, signal.SIGSTOP)
    sent, until_s = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            tensor = {"name": "INPUT0", "shape": [1 << 18], "datatype": "FP32"}
            tensor["data"] = [0.5] * (1 << 18)
            assert (
                server.request_json("/v2/models/identity_fp32/infer", {"inputs": [tensor]})[0]
                == 200
            )
            sent += 1
    finally:
        with suppress(ProcessLookupError):  # its supervisor has seen that it hangs
            os.kill(pid, signal.SIGCONT)
    return f"{sent} requests answered"


ATTACKS = {attack.__name__: attack for attack in (tiny, without_end, many_files, stopped)}


# -------------------------------------------------------------------- measuring


def watch(server: Server) -> AttackWatch:
    return AttackWatch(
        server,
        "capture",
        captures_of(server),
        lambda: ask_add_sub(server),
        look_every_s=0.2,
        ask_every_s=0.05,
    )


def main() -> int:
    is_broken = False
    for name in sys.argv[1:] or ATTACKS:
        with (
            tempfile.TemporaryDirectory(prefix="attacks-") as place,
            capturing(Path(place)) as server,
        ):
            ask_add_sub(server)
            with watch(server) as watched:
                text = ATTACKS[name](server)
            readable = sum(1 for _ in read(captures_of(server)))
        waited = sorted(watched.waited_ms)
        is_broken |= max(watched.more_mib.values(), default=0) > MAX_MORE_MIB
        is_broken |= watched.disk_bytes > 2 * LIMIT_BYTES or bool(watched.failed)
        sys.stdout.write(
            f"{name}: {text}; {readable} records can be read\n    memory {dict(watched.before)} "
            f"and at most {dict(watched.more_mib)} MiB more, "
            f"disk {watched.disk_bytes / MIB:.0f} MiB; honest: {len(waited)} times, "
            f"median {statistics.median(waited):.1f} ms, p99 "
            f"{waited[int(len(waited) * 0.99)]:.1f} ms, failed {dict(watched.failed) or 0}\n"
        )
        sys.stdout.flush()
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
