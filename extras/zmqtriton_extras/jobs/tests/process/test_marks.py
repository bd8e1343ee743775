"""The marks of executed jobs: what a process leaves to the next one, and a machine does not."""

from __future__ import annotations

import random
from pathlib import Path

from zmqtriton_extras.jobs.messages import new_id
from zmqtriton_extras.jobs.process.store_thread import Marks


def _leave(path: Path, begun: list[str], ended: list[str], boot: str | None = None) -> None:
    """Mark jobs as a process that is killed then."""
    marks = Marks(path, boot)
    marks.reset()
    for job in begun:
        marks.begin(job)
    for job in ended:
        marks.end(job)
    marks.close()


def test_the_next_process_knows_what_was_executed(tmp_path: Path) -> None:
    path, jobs = tmp_path / "executed", [new_id() for _ in range(300)]
    _leave(path, jobs, jobs[:290])
    assert frozenset(jobs[290:]) == Marks(path).earlier

    _leave(path, [], [])
    assert frozenset() == Marks(path).earlier


def test_after_a_power_cut_nothing_is_known(tmp_path: Path) -> None:
    path, job = tmp_path / "executed", new_id()
    assert Marks(path).earlier is None
    _leave(path, [job], [], boot="before")

    assert frozenset([job]) == Marks(path, "before").earlier
    assert Marks(path, "after").earlier is None
    # where the machine does not tell since when it runs
    _leave(path, [job], [], boot="")
    assert Marks(path, "").earlier is None


def test_places_are_used_again_and_none_twice(tmp_path: Path) -> None:
    path, chance = tmp_path / "executed", random.Random(3)
    marks = Marks(path)
    marks.reset()
    executed: set[str] = set()
    for _ in range(3000):
        if executed and (len(executed) > 20 or chance.random() < 0.5):
            job = executed.pop()
            marks.end(job)
        else:
            job = new_id()
            executed.add(job)
            marks.begin(job)
    marks.end("unknown")
    marks.close()

    assert frozenset(executed) == Marks(path).earlier
    assert path.stat().st_size < 16 << 10
