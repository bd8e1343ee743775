"""`python -m tests.faults.simulation 10000`: so many seeded days of a broker, and what they broke.

Each seed is a day of tests/broker/simulation/days.py: every scheduler, with the rate limiter, the
cache, the bounds, and the deaths of stubs and frontends; and one of models that ask each other, of
test_simulation_rates.py there. Every tenth is also one in which brokers die, of
test_simulation_epochs.py, and one of a supervisor whose model is scaled, rolled and tried, of
tests/supervisor/test_steered_days.py. Prints the seeds that broke a promise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from tests.broker.simulation.days import RandomRun
from tests.broker.simulation.test_simulation_epochs import Epochs, settle
from tests.broker.simulation.test_simulation_rates import Calls
from tests.supervisor import test_steered_days
from zmqtriton_stub.broker import unconfirmed_answers

STEPS = 150


def _day(seed: int) -> None:
    day = RandomRun(seed)
    day.run(STEPS)
    day.run_to_end()


def _calls(seed: int) -> None:
    calls = Calls(seed)
    calls.run(STEPS)
    calls.end()


def _epochs(seed: int) -> None:
    epochs = Epochs(seed)

    def now_ns() -> int:
        return epochs.now

    with mock.patch.object(unconfirmed_answers, "_now_ns", now_ns):
        epochs.run(4 * STEPS, 0.05)
        settle(epochs)


def _steered_day(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        test_steered_days.live(Path(folder), seed)


def _has_failed(live: Callable[[int], None], seed: int) -> bool:
    try:
        live(seed)
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError):
        print(f"seed {seed} of {live.__name__}:")
        traceback.print_exc(limit=-3, file=sys.stdout)
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    begun = time.monotonic()
    broken = 0
    for seed in range(options.first, options.first + options.runs):
        broken += _has_failed(_day, seed) + _has_failed(_calls, seed)
        if not seed % 10:
            broken += _has_failed(_epochs, seed) + _has_failed(_steered_day, seed)
    took = time.monotonic() - begun
    print(f"{options.runs} seeds in {took:.0f} s: {broken} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
