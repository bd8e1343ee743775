"""Findings about cores: what this machine gives instances, and what they have on a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import (
    AnswerReader,
    Chapter,
    Facts,
    Finding,
    Problem,
    Severity,
    Target,
    instance_specs,
    with_group_defaults,
)
from zmqtriton_extras.cores import settings
from zmqtriton_extras.cores.dealing import deal
from zmqtriton_extras.cores.machine import describe, read_machine

#: Numbers of instances whose sets the doctor shows.
_EXAMPLES = (1, 2, 4, 8)
_FEWER = "Have fewer instances (`instance_group.count`), or a lower number in CORES."


def notes_of_configs(configs: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """Yield the shares of the models with CORES on this machine."""
    demands: dict[tuple[str, int], int] = {}
    for name, config in configs.items():
        demand = settings.read(config)
        if demand is not None and demand >= 0:
            specs = instance_specs(with_group_defaults(config))
            demands |= {(name, at): demand for at, _ in enumerate(specs)}
    machine, field = read_machine(), ("parameters", settings.CORES)
    shares = deal(machine, demands)
    for name in dict.fromkeys(name for name, _ in demands):
        own = [share for (model, _), share in shares.items() if model == name]
        who = f"each of its {len(own)} instances" if len(own) > 1 else "its instance"
        text = f"{who} computes with {own[0].threads} of {describe(machine)} on this machine"
        is_short = any(share.is_shared for share in own)
        text += f", which {len(shares)} instances share" if is_short else ""
        severity = Severity.WARNING if is_short else Severity.NOTE
        yield name, Problem(text, field, severity=severity)


def chapters(target: Target) -> Iterator[Chapter]:
    yield Chapter("cores", _judge(target))


def _judge(target: Target) -> Iterator[Finding]:
    """Say what instances get, if the server deals the cores of this machine to all of them."""
    if target.options.get("cores") != settings.AUTO:
        return
    machine, total = read_machine(), target.server.instances if target.server else 0
    numbers = [total] if total else [n for n in _EXAMPLES if n <= len(machine.cores)]
    sizes = {n: deal(machine, dict.fromkeys(range(n), 0))[0] for n in numbers}
    listed = ", ".join(f"{n}: {share.threads}" for n, share in sizes.items())
    text = f"{describe(machine)} are dealt to instances; threads of each, by their number: {listed}"
    is_short = any(share.is_shared for share in sizes.values())
    yield Finding.warning(text, _FEWER) if is_short else Finding.note(text, "")


def read(reader: AnswerReader, facts: Facts) -> None:
    """Ask nothing: the status has all."""


def findings(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Return nothing: cores keep no model from serving."""
    return iter(())


def notes(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Name the cores of each instance, and warn of shared cores and of unfit threads."""
    rows = facts.rows("cores")
    if not rows or facts.is_overview:
        return
    sets = ", ".join(f"{row['instance']}: {row['cores']}" for row in rows)
    yield Finding.note(f"cores of its instances: {sets}", "")
    if any(row["is_shared"] for row in rows):
        yield Finding.warning(
            "its instances share cores: there are more instances than cores", _FEWER
        )
    moved = [row["instance"] for row in rows if row["threads"] != row["due_threads"]]
    if moved:
        yield Finding.warning(
            f"{', '.join(moved)}: started with threads for other cores than they have now",
            "Replace the instances, so that numeric libraries start as many threads as fit.",
            f"zmqtriton-ctl reload {facts.word} --force",
        )
