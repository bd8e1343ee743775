"""The account of a run: what was called, looked at, and wrong."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.programs.drawing import Program

#: Wrong arrays of a kind that are described.
_DESCRIBED = 3


@dataclass
class Report:
    """Counters of all worlds. Thread-safe."""

    calls: int = 0
    #: The number of the newest request, which may not be made.
    numbers: int = 0
    #: Requests that were answered, and right or wrong.
    answered: int = 0
    looks: int = 0
    reloads: int = 0
    #: Copies of requests whose answers were equal.
    comparisons: int = 0
    #: Records of captures.
    records: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    by_way: Counter[str] = field(default_factory=Counter)
    descriptions: list[str] = field(default_factory=list)
    begun_s: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def new_call(self) -> int:
        """Return the number of a new request."""
        with self.lock:
            self.numbers += 1
            return self.numbers

    def add_call(self, way: str) -> None:
        """Count a request that is made."""
        with self.lock:
            self.calls += 1
            self.by_way[way] += 1

    def add_answer(self) -> None:
        """Count a request that was answered."""
        with self.lock:
            self.answered += 1

    def add_looks(self, count: int) -> None:
        with self.lock:
            self.looks += count

    def add_wrong(self, kind: str, description: str, program: Program | None) -> None:
        with self.lock:
            self.wrong[kind] += 1
            if self.wrong[kind] <= _DESCRIBED:
                text = f"{kind}: {description}"
                self.descriptions.append(f"{text}\n    {program}" if program else text)
                print(f"WRONG {self.descriptions[-1]}", flush=True)

    def add_error(self, text: str) -> None:
        with self.lock:
            self.errors[text[:300]] += 1

    def add_unanswered(self, text: str) -> None:
        with self.lock:
            self.unanswered[text] += 1
        print(f"UNANSWERED {text}", flush=True)

    def read_models(self, scratch: Path, programs: Sequence[Program], world: str) -> None:
        """Add the looks of models, and the arrays that they found changed."""
        by_name = {program.name: program for program in programs}
        looks, changed = scratch / "looks", scratch / "changed"
        self.add_looks(looks.stat().st_size if looks.exists() else 0)
        for line in changed.read_text().splitlines() if changed.exists() else ():
            change = json.loads(line)
            words = (
                f"world {world}: {change['model']} has kept an array of call {change['of_call']} "
                f"({change['place']}); {change['when']} (call {change['in_call']}): "
                f"{change['found']}"
            )
            self.add_wrong("kept by a model", words, by_name.get(change["model"]))

    @property
    def faults(self) -> int:
        """Return the number of whatever must not be."""
        errors = 0 if self.kills else self.errors.total()
        return self.wrong.total() + self.unanswered.total() + errors

    @property
    def is_good(self) -> bool:
        return not self.faults

    def print(self, seed: int) -> None:
        seconds = time.monotonic() - self.begun_s
        print(f"calls {self.calls} ({dict(self.by_way)}), answered {self.answered}")
        print(
            f"looks at arrays {self.looks}, equal copies {self.comparisons}, records "
            f"{self.records}, reloads {self.reloads}, kills {dict(self.kills)}"
        )
        for text, count in self.errors.most_common(20):
            print(f"error, {count} times: {text}")
        for text, count in self.unanswered.items():
            print(f"unanswered, {count} times: {text}")
        for kind, count in self.wrong.items():
            print(f"WRONG, {count} times: {kind}")
        print(
            f"wrong {self.wrong.total()}, unanswered {self.unanswered.total()}, errors "
            f"{self.errors.total()}, {seconds:.0f} s, {self.calls / seconds:.0f} calls/s, "
            f"seed {seed}",
            flush=True,
        )
