"""The figures of attacks that are the same each time: `python -m tests.faults.attacks.figures`.

Each attack of strongest.py comes several times, beside a few honest clients. Printed are medians
and maxima over these times: how much larger than without attacks the memory of the processes of a
kind was at most, and how long a request of an honest client took at most. `left` is what is still
larger 40 s after the last time began. Nothing is judged; figures are worth something on a quiet
machine, and `machine` is how late a process was that wanted next to nothing.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.attacks.serving import LIMIT, Scene, serving
from tests.faults.attacks.strongest import ATTACKS
from tests.faults.attacks.watching import MIB, ROLES, Gauge, Machine, Reading, honest_clients
from tests.faults.mixed_clients import (
    RIGHT,
    Ask,
    Client,
    GrpcClient,
    HttpClient,
    StreamClient,
)
from tests.support.tools import parse_options

_KINDS: tuple[tuple[type[Client], int], ...] = (
    (HttpClient, 2),
    (GrpcClient, 2),
    (StreamClient, 1),
)
#: Between two requests of a client, on average.
_PAUSE_S = 0.1
_QUIET_S, _REST_S, _LEFT_AFTER_S = 5.0, 3.0, 40.0
#: With tokens, or nobody would lack one.
_SEED = 1
_NOTHING = "nothing"
_WIDTH = 42


def _measure(scene: Scene, idle: Reading, name: str, times: int, seconds: float) -> None:
    """Attack so often, and print what it came to."""
    names = () if name == _NOTHING else (name,)
    rounds = [scene.attack(names, random.Random(n), seconds, _REST_S) for n in range(times)]
    time.sleep(max(0.0, rounds[-1].begun + _LEFT_AFTER_S - time.monotonic()))
    left = _growth(idle, scene.gauge.newest)
    growths = [_growth(idle, one.peak) for one in rounds]
    # only now: a wait is known when it is over
    asks = [one.asks(scene.asks) for one in rounds]
    cells = [f"{name:{_WIDTH}}"]
    cells += [_cell([growth[kind] for growth in growths], 12) for kind in left]
    cells.append("/".join(map(str, left.values())).rjust(16))
    cells += [_cell([_longest_ms(own, kind) for own in asks], 17) for kind, _ in _KINDS]
    cells.append(_cell([scene.machine.longest_ms(one.begun, one.end) for one in rounds], 10))
    cells.append(f"{sum(one.outcome != RIGHT for own in asks for one in own):7}")
    print("".join(cells), flush=True)


def _growth(idle: Reading, reading: Reading) -> dict[str, int]:
    """Return what the memory is above what it is without attacks, in MiB, by role."""
    growth = {role: max(0, reading.own[role] - idle.own[role]) for role in ROLES}
    return {**growth, "shared": max(0, reading.shared - idle.shared)}


def _longest_ms(asks: Sequence[Ask], kind: type[Client]) -> float:
    return max((one.wait_s * 1000 for one in asks if one.kind is kind), default=0.0)


def _cell(values: Sequence[float], width: int) -> str:
    return f"{statistics.median(values):.0f}/{max(values):.0f}".rjust(width)


def _print_head(idle: Reading, times: int) -> None:
    memory = ", ".join(f"{role} {idle.own[role]}" for role in ROLES)
    print(f"without attacks: {memory}, shared {idle.shared} MiB; the option has {LIMIT // MIB} MiB")
    roles = "".join(f"{f'{kind} MiB':>12}" for kind in (*ROLES, "shared"))
    clients = "".join(f"{f'{kind.__name__} ms':>17}" for kind, _ in _KINDS)
    title = f"median/maximum of {times}"
    print(f"{title:{_WIDTH}}{roles}{'left':>16}{clients}{'machine':>10}{'wrong':>7}", flush=True)


def main() -> None:
    arguments = parse_options(
        only=("", "attacks with this in their name"),
        times=(5, "of each attack"),
        seconds=(10.0, "of one attack"),
    )
    names = [name for name in (_NOTHING, *ATTACKS) if arguments.only in name]
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(_SEED, Path(directory)) as (server, target),
        honest_clients(server, target.headers, _KINDS, _PAUSE_S) as asks,
        Gauge(server) as gauge,
        Machine() as machine,
    ):
        scene = Scene(target, asks, machine, gauge)
        idle = scene.attack((), random.Random(), _QUIET_S, 0.0).peak
        _print_head(idle, arguments.times)
        for name in names:
            _measure(scene, idle, name, arguments.times, arguments.seconds)


if __name__ == "__main__":
    main()
