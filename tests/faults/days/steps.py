"""The steps of a day: which operations and which faults, as the seed and the step's number say."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.faults.days.operations import OPERATIONS

#: Seconds before a fault: within a call, between two, when a load is nearly done, or once a poll
#: has found a change.
_PAUSES_S = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.2, 1.8)


class TimedFault(NamedTuple):
    pause_s: float
    name: str


class Step(NamedTuple):
    number: int
    operations: tuple[str, ...]
    faults: tuple[TimedFault, ...]

    def __str__(self) -> str:
        faults = ", ".join(f"after {f.pause_s:g} s {f.name}" for f in self.faults)
        return f"step {self.number}: {' and '.join(self.operations) or '-'} x {faults or '-'}"


class Choice(NamedTuple):
    seed: int
    mode: str
    #: Names of faults: those that stand alone, and those of steps with operations.
    faults: Sequence[str]
    further: Sequence[str]
    operations: Sequence[str]
    #: The share of the steps with operations.
    steering: float


def chance_of(seed: int, mode: str, number: int, part: str = "") -> Random:
    """Return the chance of one step, whatever the steps before it took."""
    return Random(f"{seed} {mode} {number} {part}")


def choose_step(choice: Choice, number: int) -> Step:
    chance = chance_of(choice.seed, choice.mode, number)
    if not choice.operations or chance.random() >= choice.steering:
        return Step(number, (), (TimedFault(0.0, chance.choice(choice.faults)),))
    names = [chance.choice(choice.operations)]
    other = chance.choice(choice.operations)
    models = [OPERATIONS[name].model for name in (names[0], other)]
    if chance.random() < 0.3 and "" not in models and models[0] != models[1]:
        names.append(other)
    count = chance.choices([0, 1, 2], [15, 60, 25])[0]
    every = [*choice.faults, *choice.further]
    faults = [TimedFault(chance.choice(_PAUSES_S), chance.choice(every)) for _ in range(count)]
    return Step(number, tuple(names), tuple(faults))
