"""The cost of captures; run as a module, with [--rounds 5] [--seconds 3] [--page].

Five servers stand side by side: without captures, with a tenth and all of the requests captured, on
a disk that is full, and on one that takes 20 ms for each record. Each gets the same clients in
turns, one server at a time, in another order each round: first requests at a fixed rate, a share of
what the server without captures can do (`--rate 0.3`) or a number, whether or not answers have
come; then as many as eight clients get answers for. The table has the medians of the rounds, and
before it stands by how much the p99 at the fixed rate differs in pairs of one round. `--page`
writes it into docs/guides/capture.md. Exits with 1 if captures are lost where the disk takes them.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import clients, cpu
from tests.support import leaks
from tests.support.scraping import read_series
from tests.support.server import ROOT, Server
from tests.support.small_disk import python_with_disk
from tests.support.waiting import eventually

_PAGE = ROOT / "docs" / "guides" / "capture.md"
_BEGIN, _END = (
    "<!-- generated: python -m zmqtriton_extras.capture.tests.costs --page -->\n\n",
    "\n<!-- end -->\n",
)
_HEAD = (
    "| | p99 at {rate:,.0f}/s | Processor time of a request | In the frontend | At most | "
    "p99 then | Written | Lost |",
    "|---|---|---|---|---|---|---|---|",
)
_FULL_BYTES = 256 << 10
_CONNECTIONS = 8
#: So many that a request at a fixed rate need not wait for a connection.
_CONNECTIONS_AT_RATE = 32
#: In the process of captures alone.
_SLOW_WRITES = """
import os, sys, time

if any("capture" in word for word in sys.orig_argv):
    def write(descriptor, data, write=os.write):
        time.sleep(0.02)
        return write(descriptor, data)

    os.write = write
"""


class _Case(NamedTuple):
    title: str
    #: The value of `--capture`; "" for none.
    captured: str
    is_full: bool = False
    is_slow: bool = False


_CASES = (
    _Case("off", ""),
    _Case("10 %", "*:10%"),
    _Case("100 %", "*"),
    _Case("100 %, a disk that is full", "*", is_full=True),
    _Case("100 %, a disk that is slow", "*", is_slow=True),
)


class _Window(NamedTuple):
    """The measured time of one case in one round."""

    cpu_us: float
    frontend_us: float
    per_s: float
    p99_ms: float


def _server(case: _Case, directory: Path) -> Server:
    captures = directory / "captures"
    captures.mkdir(parents=True)
    options = [f"--capture={case.captured}", f"--capture-to={captures}"] if case.captured else []
    environment = {}
    if case.is_slow:
        (directory / "python").mkdir()
        (directory / "python" / "sitecustomize.py").write_text(_SLOW_WRITES)
        environment["PYTHONPATH"] = str(directory / "python")
    return Server(
        directory / "s",
        models=["identity_fp32"],
        options=options,
        environment=environment,
        python=python_with_disk(captures, _FULL_BYTES) if case.is_full else sys.executable,
        frontends=("metrics",),
    )


def _measure(server: Server, seconds: float) -> _Window:
    plan = clients.http_json(server.http_port)
    got = clients.measure(plan, _CONNECTIONS, seconds, partial(cpu.by_role, server))
    spent = got.cpu_us
    return _Window(sum(spent.values()), spent["http"], got.per_s, got.p99_ms)


def _measure_at(server: Server, seconds: float, rate: float) -> float:
    """Return the p99 of requests that come at a rate, in milliseconds."""
    plan = clients.http_json(server.http_port)
    return clients.measure(plan, _CONNECTIONS_AT_RATE, seconds, rate=rate).p99_ms


def _in_turns(titles: Iterable[str], rounds: int) -> Iterator[str]:
    """Return all titles in each round, every time from another one on."""
    order = [*titles]
    for number in range(rounds):
        first = number % len(order)
        yield from order[first:] + order[:first]


def _pairs(steady: dict[str, list[float]], rate: float) -> str:
    """Return how the p99 of each case differs from that without captures in the same round."""
    off = steady[_CASES[0].title]
    lines = [f"p99 at {rate:,.0f}/s without captures: {min(off):.2f} to {max(off):.2f} ms"]
    for title, times in steady.items():
        more = sorted(p99 - base for p99, base in zip(times, off, strict=True))
        text = f"{title}: {statistics.median(more):+.2f} ms"
        lines.append(f"{text}, from {more[0]:+.2f} to {more[-1]:+.2f}")
    return "".join(f"{line}\n" for line in lines)


def _counts(server: Server) -> Counter[str]:
    """Return the numbers of requests, and of captures by result."""
    counts: Counter[str] = Counter()
    for series, count in read_series(server).items():
        if series.startswith("nv_inference_request_success"):
            counts["requests"] += int(count)
        elif series.startswith("zmqtriton_captures_total"):
            counts[series.partition('result="')[2].partition('"')[0]] += int(count)
    return counts


def _row(case: _Case, steady: list[float], windows: list[_Window], counts: Counter[str]) -> str:
    median = _Window(*map(statistics.median, zip(*windows, strict=True)))
    cells = (
        case.title,
        f"{statistics.median(steady):.2f} ms",
        f"{median.cpu_us:.0f} µs",
        f"{median.frontend_us:.0f} µs",
        f"{median.per_s:,.0f}",
        f"{median.p99_ms:.1f} ms",
        f"{counts['written']:,} of {counts['requests']:,}",
        f"{counts['failed'] + counts['dropped']:,}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=0.3, help="a share, or requests a second")
    parser.add_argument("--page", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    leaks.mark_session()
    busy: dict[str, list[_Window]] = {case.title: [] for case in _CASES}
    steady: dict[str, list[float]] = {case.title: [] for case in _CASES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {
            case.title: stack.enter_context(_server(case, folder / str(number)))
            for number, case in enumerate(_CASES)
        }
        for server in servers.values():
            _measure_at(server, 1.0, 100)
        rate = (
            options.rate if options.rate > 1 else options.rate * _measure(servers["off"], 2).per_s
        )
        for title in _in_turns(servers, options.rounds):
            steady[title].append(_measure_at(servers[title], options.seconds, rate))
        for title in _in_turns(servers, options.rounds):
            busy[title].append(_measure(servers[title], options.seconds))
        eventually(lambda: _is_complete(servers["100 %"]), 60)
        counts = {title: _counts(server) for title, server in servers.items()}
    sys.stdout.write(_pairs(steady, rate))
    rows = [_row(case, steady[case.title], busy[case.title], counts[case.title]) for case in _CASES]
    head = _HEAD[0].format(rate=rate), _HEAD[1]
    table = "".join(f"{line}\n" for line in (*head, *rows))
    sys.stdout.write(table)
    if options.page:
        page = _PAGE.read_text("utf-8")
        pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
        _PAGE.write_text(pattern.sub(lambda match: f"{_BEGIN}{table}{_END}", page), "utf-8")
    kept = (counts[title] for title in ("10 %", "100 %"))
    return int(any(row["failed"] or row["dropped"] for row in kept))


def _is_complete(server: Server) -> bool:
    counts = _counts(server)
    return counts["written"] >= counts["requests"]


if __name__ == "__main__":
    sys.exit(main())
