"""`make replacements`: replaces servers under load, and prints what each kind of client saw."""

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
    SharedMemoryClient,
    UploadingClient,
    crowd,
)
from tests.faults.replacements.kills import KILLS, kill_under_load
from tests.faults.replacements.libraries import (
    CurlClient,
    H2loadClient,
    library_crowd,
    missing_programs,
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
    "two-servers": OnOnePort,
    "haproxy": ByFixedHaproxy,
    "haproxy-follow": ByHaproxy,
    "envoy": ByEnvoy,
}
_PAUSE_S = 3.0
#: Clients of which one round is several requests, or takes its time.
_LENGTHY = (*OF_SEQUENCES, UploadingClient, CurlClient, H2loadClient)


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


def _kill_at_each_step(times: int, numbers: Crowd, make: Callable[[Path], ByTakeOver]) -> int:
    has_failed = False
    with tempfile.TemporaryDirectory() as directory:
        way = make(Path(directory))
        way.start()
        try:
            for kill in KILLS * times:
                clients, wrong = asyncio.run(kill_under_load(way, kill, numbers))
                in_hand = sum(map(_failed, clients)) - len(wrong)
                print(f"== {kill} is killed: {in_hand} failed that it had, {len(wrong)} others")
                print("\n".join(wrong[:20]), flush=True)
                has_failed |= bool(wrong) or not all(client.right for client in clients)
        finally:
            way.close()
    return int(has_failed)


def _replace_in_way(name: str, times: int, numbers: Crowd) -> Row | None:
    """Replace the server in this way, and print what came of it; None where it cannot be had."""
    make = WAYS[name]
    if isinstance(make, type) and issubclass(make, BehindProxy) and make.program is None:
        print(f"== {name}: left out, since the program is not here")
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
    within = ", ".join(f"{each:.1f}" for each in gone_s)
    print(f"== {name}: {seconds:.0f} s; the old server went within {within} s")
    print(table(clients), flush=True)
    failures = [f"{each.label}: {text}" for each in clients for _, text in each.failures]
    print("\n".join(failures[:20]), flush=True)
    return Row.of(name, times, clients)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help="all of them without any")
    parser.add_argument("--times", type=int, default=1, help="replacements of each way")
    parser.add_argument("--long", action="store_true", help="with streams of up to 60 s")
    parser.add_argument("--kills", action="store_true", help="kill a server at each step instead")
    options = parser.parse_args()
    numbers = {**(LONG_CROWD if options.long else CROWD), **library_crowd()}
    for name in missing_programs():
        print(f"left out, since it is not here: {name}")
    if options.kills:
        make = InOneDirectory if options.ways == ["one-directory"] else ByTakeOver
        return _kill_at_each_step(options.times, numbers, make)
    results = [_replace_in_way(name, options.times, numbers) for name in options.ways or WAYS]
    rows = [row for row in results if row is not None]
    words = ("replacements", "requests", "failed", "streams cut", "longest wait")
    print(f"{'way':20}" + "".join(f"{word:>14}" for word in words))
    print("\n".join(row.text() for row in rows))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
