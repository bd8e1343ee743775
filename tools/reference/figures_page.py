"""The page of measured figures, from the results that tests/bench keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.reference.markdown import heading, table

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = _ROOT / "tests" / "bench" / "results"
_ABOUT = """\
The newest figures of each benchmark that were kept, with machine, interpreter and commit. The
clients and the server share the machine. Rates depend on it, and ratios less. [What a request
costs](../guides/performance.md) says what to do with them."""
#: The roles besides the broker and the instance that take part in requests of clients.
_FRONTENDS = ("http", "grpc", "door")


def page() -> Iterator[str]:
    """Return the lines of the page."""
    yield from heading("Measured figures", _ABOUT, "tests/bench/results")
    yield from _section("Requests", "requests", "make bench ARGS=--save", _requests)
    yield from _section("Growth", "growth", "make bench OF=growth ARGS=--save", _growth)
    yield from _section(
        "Instances and batches", "tuning", "python -m tests.bench.tuning --save", _tuning
    )
    yield from _section(
        "Instances by load",
        "autoscale",
        "python -m zmqtriton_extras.scaling.tests.autoscale --save",
        _autoscale,
    )


def _section(title: str, kind: str, command: str, tables: Any) -> Iterator[str]:
    newest = max(_RESULTS.glob(f"*-{kind}.json"))
    document = json.loads(newest.read_text("utf-8"))
    machine = document["machine"]
    yield from (f"## {title}", "")
    yield (
        f"`{command}` at commit {document['commit']} ({newest.name[:10]}): {machine['cores']} "
        f"cores of {machine['cpu']}, Linux {machine['kernel'].partition('-')[0]}, "
        f"Python {machine['python']}, {machine['build']}."
    )
    yield ""
    yield from tables(document["rows"])


def _requests(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    head = ("request", "connections", "per second", "median ms", "99 % ms")
    roles = ("frontend", "broker", "instance", "all")
    yield from table(
        (*head, *(f"CPU µs, {role}" for role in roles)),
        [
            (
                row["workload"],
                str(row["connections"]),
                f"{row['per_s']:,.0f}",
                f"{row['p50_ms']:.2f}",
                f"{row['p99_ms']:.2f}",
                *(f"{us:,.0f}" for us in _cpu(row)),
            )
            for row in rows
        ],
    )
    yield "*bound* is a function of a process of the user, *door* a client over ZeroMQ."
    yield ""


def _cpu(row: dict[str, Any]) -> tuple[float, float, float, float]:
    by_role = row["cpu_us_by_role"]
    frontend = sum(by_role.get(role, 0.0) for role in _FRONTENDS)
    return frontend, by_role["broker"], by_role["stub"], row["cpu_us"]


def _growth(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from table(
        ("", "number", "ready after s", "memory MiB", "idle CPU %", "CPU µs of a request"),
        [
            (
                row["kind"],
                f"{row['size']:,}",
                f"{row['ready_s']:.1f}",
                f"{row['memory_mib']:,.0f}",
                f"{row['idle_percent']:.1f}",
                f"{row['cpu_us']:,.0f}",
            )
            for row in rows
        ],
    )


def _tuning(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "Requests per second, and their median latency in ms, by the number of clients:"
    yield ""
    clients = [str(point["clients"]) for point in rows[0]["points"]]
    yield from table(
        ("", *clients),
        [
            (
                row["setting"],
                *(f"{point['per_s']:,.0f} / {point['p50_ms']:.0f}" for point in row["points"]),
            )
            for row in rows
        ],
    )


def _autoscale(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from table(
        ("instances", "99 % in the queue ms", "seconds of instances", "failed"),
        [
            (
                row["name"],
                f"{row['all_p99_ms']:,.1f}",
                f"{row['instance_seconds']:,.0f}",
                str(row["failed"]),
            )
            for row in rows
        ],
    )
