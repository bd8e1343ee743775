"""`make faults OF=replacements`: replaces servers under load, and prints what each client saw."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.replacements.clients import (
    CROWD,
    LONG_CROWD,
    OF_SEQUENCES,
    OF_STREAMS,
    Client,
    Crowd,
    QuietGrpcClient,
    QuietHttpClient,
    SharedMemoryClient,
    UploadingClient,
    UploadingGrpcClient,
    crowd,
)
from tests.faults.replacements.kills import KILLS, Kill, kill_under_load
from tests.faults.replacements.libraries import (
    CurlClient,
    H2loadClient,
    library_crowd,
    missing_programs,
)
from tests.faults.replacements.machine import (
    ByReload,
    ByReloadBehindSockets,
    ByRestart,
    OnMachine,
    reason_against,
)
from tests.faults.replacements.proxied import BehindProxy, ByEnvoy, ByFixedHaproxy, ByHaproxy
from tests.faults.replacements.ways import (
    ByCommand,
    BySystemd,
    ByTakeOver,
    InOneDirectory,
    OneByOne,
    OnOnePort,
    Way,
    WithGrpcio,
)

WAYS: Mapping[str, Callable[[Path], Way]] = {
    "command": ByCommand,
    "take-over": ByTakeOver,
    "one-directory": InOneDirectory,
    "take-over-grpcio": WithGrpcio,
    "one-by-one": OneByOne,
    "systemd": BySystemd,
    "systemd-reload": ByReload,
    "systemd-reload-sockets": ByReloadBehindSockets,
    "systemd-restart": ByRestart,
    "two-servers": OnOnePort,
    "haproxy": ByFixedHaproxy,
    "haproxy-follow": ByHaproxy,
    "envoy": ByEnvoy,
}
#: All that is promised, each way so often: with those under long streams and the kills 53
#: replacements, in half an hour.
WHOLE: Mapping[str, int] = {
    "command": 4,
    "take-over": 3,
    "one-directory": 3,
    "one-by-one": 2,
    "two-servers": 3,
    "haproxy": 2,
    "haproxy-follow": 4,
    "envoy": 2,
    "take-over-grpcio": 2,
    "systemd": 2,
    "systemd-reload": 3,
    "systemd-reload-sockets": 3,
    "systemd-restart": 3,
}
_LONG_TIMES = 1
#: The ways that lose requests, as the guide says: nothing is demanded of them.
_LOSING = ("take-over-grpcio",)
_PAUSE_S = 3.0
#: Clients of which one round is several requests, or takes its time.
_LENGTHY = (
    *OF_SEQUENCES,
    UploadingClient,
    UploadingGrpcClient,
    QuietHttpClient,
    QuietGrpcClient,
    CurlClient,
    H2loadClient,
)


class Row(NamedTuple):
    """A way, and what came of it."""

    way: str
    replacements: int
    requests: int
    failed: int
    cut: int
    #: But for clients of streams and uploads, which wait for what they ask for.
    longest_s: float

    @staticmethod
    def of(name: str, times: int, clients: Sequence[Client]) -> Row:
        failed = sum(map(_failed, clients))
        cut = sum(_failed(client) for client in clients if isinstance(client, OF_STREAMS))
        requests = failed + sum(client.right for client in clients)
        waits = [c.longest_s for c in clients if not isinstance(c, (*OF_STREAMS, *_LENGTHY))]
        return Row(name, times, requests, failed, cut, round(max(waits), 1))

    def text(self) -> str:
        way, *numbers = self
        return f"{way:20}" + "".join(f"{number:>14}" for number in numbers)


async def replace_under_load(
    way: Way, times: int, numbers: Crowd = CROWD, pause_s: float = _PAUSE_S
) -> tuple[list[Client], list[float]]:
    """Replace the server so often; return the clients, and how long each old server took to go."""
    gone_s = []
    async with crowd(way.http_port, way.grpc_port, numbers) as clients:
        for _ in range(times):
            await asyncio.sleep(pause_s)
            gone_s.append(await asyncio.to_thread(way.replace))
        await asyncio.sleep(pause_s)
    return clients, gone_s


def table(clients: Sequence[Client]) -> str:
    """A row for each kind: requests, failures, the longest wait."""
    lines = [f"{'':55}{'right':>7}{'failed':>7}{'longest':>9}"]
    for name in dict.fromkeys(client.label for client in clients):
        own = [client for client in clients if client.label == name]
        right, failed = sum(client.right for client in own), sum(map(_failed, own))
        longest_s = max(client.longest_s for client in own)
        lines.append(f"{name:55}{right:7}{failed:7}{longest_s:8.1f}s")
    lost = sum(client.lost for client in clients if isinstance(client, SharedMemoryClient))
    total = sum(map(_failed, clients))
    return "\n".join((*lines, f"{total} failed, {lost} times a region had to be registered again"))


def _failed(client: Client) -> int:
    return len(client.failures)


class KillRow(NamedTuple):
    """A server that was killed while it replaced another or was replaced, and what came of it."""

    way: str
    kill: Kill
    requests: int
    #: Of what the killed one had, and of what it never had.
    failed: int
    wrong: int
    #: The other one has answered every client since.
    serves: bool

    def text(self) -> str:
        other = "new" if self.kill.is_old else "old"
        serves = f"the {other} one serves" if self.serves else "NOBODY SERVES"
        numbers = "".join(f"{n:>10}" for n in (self.requests, self.failed, self.wrong))
        return f"{self.way:15}{self.kill!s:52}{numbers}  {serves}"


def _kill_at_each_step(name: str, times: int, numbers: Crowd) -> list[KillRow]:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        way = WAYS[name](Path(directory))
        assert isinstance(way, ByTakeOver)
        with way:
            for kill in KILLS * times:
                clients, wrong, serves = asyncio.run(kill_under_load(way, kill, numbers))
                failed = sum(map(_failed, clients)) - len(wrong)
                requests = failed + len(wrong) + sum(client.right for client in clients)
                rows.append(KillRow(name, kill, requests, failed, len(wrong), serves))
                print("\n".join((rows[-1].text(), *wrong[:20])), flush=True)
    return rows


def _why_not(make: Callable[[Path], Way]) -> str | None:
    """Return why a way cannot be had here."""
    if isinstance(make, type) and issubclass(make, BehindProxy) and make.program is None:
        return "the program is not here"
    return reason_against() if isinstance(make, type) and issubclass(make, OnMachine) else None


def _replace_in_way(name: str, times: int, numbers: Crowd, *, is_long: bool = False) -> Row | None:
    """Replace the server in this way, and print what came of it; None where it cannot be had."""
    make = WAYS[name]
    if reason := _why_not(make):
        print(f"== {name}: left out: {reason}")
        return None
    with tempfile.TemporaryDirectory() as directory:
        way = make(Path(directory))
        numbers = {kind: n for kind, n in numbers.items() if kind not in way.leaves_out}
        try:
            way.start()
            begun_s = time.monotonic()
            clients, gone_s = asyncio.run(replace_under_load(way, times, numbers))
            seconds = time.monotonic() - begun_s
        finally:
            way.close()
    label = f"{name}, long" if is_long else name
    within = ", ".join(f"{each:.1f}" for each in gone_s)
    print(f"== {label}: {seconds:.0f} s; the old server went within {within} s")
    print(table(clients), flush=True)
    failures = [f"{each.label}: {text}" for each in clients for _, text in each.failures]
    print("\n".join(failures[:20]), flush=True)
    return Row.of(label, times, clients)


def _print_rows(rows: Sequence[Row], killed: Sequence[KillRow]) -> None:
    words = ("replacements", "requests", "failed", "streams cut", "longest wait")
    print(f"{'way':20}" + "".join(f"{word:>14}" for word in words))
    print("\n".join(row.text() for row in rows))
    sums = (sum(row.replacements for row in rows), sum(row.requests for row in rows))
    print(f"{'in all':20}" + "".join(f"{number:>14}" for number in sums))
    if killed:
        of_kills = ("requests", "it had", "others")
        print(f"{'way':15}{'killed':52}" + "".join(f"{word:>10}" for word in of_kills))
        print("\n".join(row.text() for row in killed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help="all of them without any")
    parser.add_argument("--times", type=int, default=1, help="replacements of each way")
    parser.add_argument("--long", action="store_true", help="with streams of up to 60 s")
    parser.add_argument("--kills", action="store_true", help="kill a server at each step instead")
    parser.add_argument("--whole", action="store_true", help="each way often enough, and kills")
    options = parser.parse_args()
    begun_s, libraries = time.monotonic(), library_crowd()
    usual, long = {**CROWD, **libraries}, {**LONG_CROWD, **libraries}
    for name in missing_programs():
        print(f"left out, since it is not here: {name}")
    names = options.ways or (["take-over", "one-directory"] if options.kills else [*WAYS])
    of_kills = names if options.kills else ["take-over", "one-directory"] if options.whole else []
    results: list[Row | None] = []
    if options.whole:
        results += [_replace_in_way(name, times, usual) for name, times in WHOLE.items()]
    elif not options.kills:
        numbers = long if options.long else usual
        results += [_replace_in_way(name, options.times, numbers) for name in names]
    if options.whole:
        results.append(_replace_in_way("take-over", _LONG_TIMES, long, is_long=True))
    killed = [row for name in of_kills for row in _kill_at_each_step(name, 1, usual)]
    rows = [row for row in results if row is not None]
    _print_rows(rows, killed)
    print(f"{(time.monotonic() - begun_s) / 60:.0f} minutes")
    has_failed = any(row.failed for row in rows if row.way not in _LOSING)
    return int(has_failed or any(row.wrong or not row.serves for row in killed))


if __name__ == "__main__":
    raise SystemExit(main())
