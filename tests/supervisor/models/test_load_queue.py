"""The loads of one model, one after the other."""

from __future__ import annotations

from zmqtriton.supervisor.models.loads.load_queue import LoadQueue
from zmqtriton_floor.reasons import Kind, Reason

WHY = Reason.of(Kind.OTHER, "unloaded")


class Load:
    """One that ends when the test says so; notes what happens to it."""

    def __init__(self, name: str, journal: list[str]) -> None:
        self.phase = f"{name} is read"
        self._name = name
        self._journal = journal

    def begin(self) -> None:
        self._journal.append(f"{self._name} begins")

    def cancel(self, why: Reason, *, has_failed: bool = False) -> None:
        self._journal.append(f"{self._name}: {why.text}")

    def drop_version(self, number: int) -> None:
        self._journal.append(f"{self._name} without {number}")


def test_loads_run_one_after_the_other() -> None:
    queue, journal = LoadQueue(), list[str]()
    first, second = Load("first", journal), Load("second", journal)
    assert (False, "") == (queue.is_loading, queue.phase)

    queue.add(first)
    queue.add(second)
    assert (["first begins"], True, "first is read") == (journal, queue.is_loading, queue.phase)

    queue.load_ended(first)
    assert (["first begins", "second begins"], "second is read") == (journal, queue.phase)

    queue.load_ended(second)
    assert not queue.is_loading


def test_a_load_that_does_not_run_ends_nothing() -> None:
    queue, journal = LoadQueue(), list[str]()
    first, second = Load("first", journal), Load("second", journal)
    queue.add(first)
    queue.add(second)

    queue.load_ended(second)

    assert (["first begins"], "first is read") == (journal, queue.phase)


def test_the_end_of_all_loads_is_told_once() -> None:
    queue, journal = LoadQueue(), list[str]()
    first, second = Load("first", journal), Load("second", journal)
    queue.add(first)
    queue.add(second)
    queue.call_at_end(lambda: journal.append("the end"))

    queue.load_ended(first)
    assert ["first begins", "second begins"] == journal

    queue.load_ended(second)
    queue.add(Load("third", journal))
    assert ["first begins", "second begins", "the end", "third begins"] == journal


def test_all_loads_are_cancelled_and_those_that_wait_never_begin() -> None:
    queue, journal = LoadQueue(), list[str]()
    first, second = Load("first", journal), Load("second", journal)
    queue.cancel_all(WHY)
    queue.add(first)
    queue.add(second)

    queue.cancel_all(WHY)
    queue.load_ended(first)

    assert ["first begins", "first: unloaded", "second: unloaded"] == journal
    assert not queue.is_loading
    queue.stop()
    assert 3 == len(journal)


def test_the_running_load_goes_on_without_a_version() -> None:
    queue, journal = LoadQueue(), list[str]()
    queue.drop_version(2)
    queue.add(Load("first", journal))
    queue.add(Load("second", journal))

    queue.drop_version(2)

    assert ["first begins", "first without 2"] == journal
