"""`make faults OF=attacks SEED=1 MINUTES=20`: hostile clients beside fifty honest ones.

One attack follows the other, in an order that the seed decides, with sizes, numbers and mixes that
it decides, too; some come together. During each of them and after it the memory of the processes
that clients speak to has a bound (watching.py), every honest request is answered right, 99 of 100
within half a second more than while nothing attacks, and the processes are the same. Seeds that are
odd have a server with tokens.

The table at the end has what each attack came to. `machine` is how late a process was that wanted
next to nothing: no request can be quicker on such a machine.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from tests.faults.attacks.one import ATTACKS
from tests.faults.attacks.serving import LIMIT, Round, Scene, serving
from tests.faults.attacks.target import ROUTED
from tests.faults.attacks.watching import (
    ALLOWANCE_MIB,
    KINDS,
    MIB,
    PART,
    ROLES,
    Gauge,
    Machine,
    Reading,
    honest_clients,
    max_mib,
    percentiles,
)
from tests.faults.figures import leaving_nothing
from tests.faults.mixed_clients import RIGHT, Ask, Client
from tests.support.server import Server
from tests.support.tools import parse_options

#: How long one attack lasts, what comes after it, and the end.
ATTACK_S, REST_S, END_S = 8.0, 3.0, 40.0
_QUIET_S = 8.0
#: More than while nothing attacks.
_P99_MS = 500.0
#: One in so many is a mix of so many.
_MIX_EVERY, _MIX = 4, (2, 4)
#: What may be left at the end: an allocator keeps so much of each process.
_KEPT_MIB = 128


def plan(chance: random.Random, kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Iterate over attacks without end: each before any comes again, and mixes between them."""
    while True:
        for name in chance.sample(kinds, len(kinds)):
            yield (name,)
            if chance.randrange(_MIX_EVERY) == 0 and len(kinds) > 1:
                yield tuple(chance.sample(kinds, min(len(kinds), chance.randint(*_MIX))))


def run(arguments: argparse.Namespace, directory: Path) -> list[str]:
    """Attack; return the promises that were broken."""
    chance = random.Random(arguments.seed)
    kinds = sorted(name for name in ATTACKS if arguments.only in name)
    if not kinds:
        raise SystemExit(f"no attack has '{arguments.only}' in its name")
    with serving(arguments.seed, directory) as (server, target), Machine() as machine:
        pids = lasting_pids(server)
        if not target.token:
            kinds = [name for name in kinds if not name.endswith("without token")]
        with honest_clients(server, target.headers) as asks, Gauge(server) as gauge:
            scene = Scene(target, asks, machine, gauge)
            # what honest clients take is not the attacks'
            rounds = [scene.attack((), chance, _QUIET_S, 0.0)]
            idle = rounds[0].peak
            print(f"MiB before, by role: {idle.own}; shared {idle.shared}", flush=True)
            deadline = time.monotonic() + 60 * arguments.minutes
            for names in plan(chance, kinds):
                if time.monotonic() > deadline:
                    break
                rounds.append(scene.attack(names, chance, ATTACK_S, REST_S))
                print(line_of(rounds[-1:], asks, machine), flush=True)
            time.sleep(END_S)  # by then whoever stalls was closed
            after = gauge.newest
        broken = [] if pids == lasting_pids(server) else ["the processes are not the same"]
        print(f"MiB after, by role: {after.own}; shared {after.shared}")
        table(rounds, asks, machine)
        broken += judge(rounds, asks, idle, after)
        errors = errors_of(server.log_text())
        print(f"errors in the log: {len(errors)}")
        broken += [f"in the log: {text}" for text in errors[:5]]
        if server.stop(60):
            broken.append("the server does not end in order")
    return broken


def lasting_pids(server: Server) -> dict[str, set[int]]:
    """Return the processes that no attack may end: but routes that die."""
    ending = set(server.stub_pids(f"{ROUTED}.routes"))
    return {role: set(pids) - ending for role, pids in server.pids().items()}


def errors_of(log: str) -> list[str]:
    """Return the lines of a log that have a traceback, each with its end only."""
    lines = [line for line in log.splitlines() if "Traceback" in line]
    return [f"{line[:200]} … {line[-300:]}" if len(line) > 500 else line for line in lines]


def table(rounds: Sequence[Round], asks: Sequence[Ask], machine: Machine) -> None:
    """Print what each kind of attack came to."""
    columns = "".join(f"{role + ' MiB':>12}" for role in ROLES)
    clients = "".join(f"{kind.__name__:>17}" for kind, _ in KINDS)
    print(f"\n{'peak/end; p50/p99/max ms':38}{columns}{'shared MiB':>12}{clients}{'machine':>9}")
    for own in by_name(rounds).values():
        print(line_of(own, asks, machine))


def by_name(rounds: Sequence[Round]) -> dict[str, list[Round]]:
    key = attrgetter("name")
    return {name: [*own] for name, own in itertools.groupby(sorted(rounds, key=key), key)}


def line_of(rounds: Sequence[Round], asks: Sequence[Ask], machine: Machine) -> str:
    cells = [f"{len(rounds):3} {rounds[0].name:34}"]
    for role in ROLES:
        peak = max(one.peak.own[role] for one in rounds)
        cells.append(f"{peak:>7}/{rounds[-1].after.own[role]:<4}")
    shared = max(one.peak.shared for one in rounds)
    cells.append(f"{shared:>7}/{rounds[-1].after.shared:<4}")
    for kind, _ in KINDS:
        own = [one.wait_s for one in within(rounds, asks) if one.kind is kind]
        cells.append("{:>6.0f}/{:.0f}/{:<5.0f}".format(*percentiles(own)).rjust(17))
    late = max(machine.longest_ms(one.begun, one.end) for one in rounds)
    cells.append(f"{late:>9.0f}")
    wrong = sum(one.outcome != RIGHT for one in within(rounds, asks))
    names = f"  {rounds[0].names}" if len(rounds) == 1 and len(rounds[0].names) > 1 else ""
    return "".join(cells) + (f"  {wrong} WRONG" if wrong else "") + names


def within(rounds: Sequence[Round], asks: Sequence[Ask]) -> list[Ask]:
    return [ask for one in rounds for ask in one.asks(asks)]


def judge(rounds: Sequence[Round], asks: Sequence[Ask], idle: Reading, after: Reading) -> list[str]:
    """Return the promises that were broken."""
    broken = []
    for role in ROLES:
        limit_mib = max_mib(idle.own[role], LIMIT // MIB)
        print(
            f"bound of {role}: ({idle.own[role]} idle + {LIMIT // MIB} of the option) × {PART} "
            f"+ {ALLOWANCE_MIB} = {limit_mib} MiB"
        )
        for one in rounds:
            if one.peak.own[role] > limit_mib:
                broken.append(f"{role} had {one.peak.own[role]} MiB: {', '.join(one.names)}")
        if after.own[role] > idle.own[role] + _KEPT_MIB:
            broken.append(f"{role} has {after.own[role]} MiB at the end")
    quiet = {kind: _p99_ms(within(rounds[:1], asks), kind) for kind, _ in KINDS}
    for name, of_name in by_name(rounds).items():
        own = within(of_name, asks)
        for kind, _ in KINDS:
            p99 = _p99_ms(own, kind)
            if p99 > quiet[kind] + _P99_MS:
                broken.append(f"{kind.__name__} has a p99 of {p99:.0f} ms: {name}")
        wrong = Counter(
            f"{one.kind.__name__}: {one.outcome[:150]}" for one in own if one.outcome != RIGHT
        )
        broken += [f"{count} × {text}: {name}" for text, count in wrong.most_common(5)]
    print(f"{len(asks)} honest requests, {sum(one.outcome == RIGHT for one in asks)} right")
    return broken


def _p99_ms(asks: Sequence[Ask], kind: type[Client]) -> float:
    return percentiles([one.wait_s for one in asks if one.kind is kind])[1]


def main() -> int:
    arguments = parse_options(
        seed=(1, "of all choices; odd ones have tokens"),
        minutes=(20.0, "of all attacks"),
        only=("", "attacks with this in their name"),
    )
    with leaving_nothing() as broken, tempfile.TemporaryDirectory() as directory:
        broken += run(arguments, Path(directory))
    print("\n".join(broken) or "every promise was kept", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
