from __future__ import annotations

import os

import pytest

from zmqtriton.environments.demand import SERVERS_OWN, Environment
from zmqtriton.supervisor.machine.log_ring import Stub
from zmqtriton.supervisor.machine.processes.fork_server import ForkServer, StubSpec

NURSERY = 1


class Unborn:
    def __init__(self, is_there: bool) -> None:
        self._is_there = is_there
        self.pid = 0
        self.is_dropped = False

    def born(self, pid: int) -> None:
        if not self._is_there:
            raise ProcessLookupError
        self.pid = pid

    def drop(self) -> None:
        self.is_dropped = True


class Midwife:
    """Remembers what it was asked to do."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked: dict[int, Unborn] = {}
        self.spawned: list[int] = []
        self.killed: list[int] = []
        self.are_there = True
        self.has_descriptors = True

    def ask(self, nursery: int, order: StubSpec) -> Unborn:
        assert nursery == NURSERY
        if not self.has_descriptors:
            raise OSError
        return self.asked.setdefault(order.serial, Unborn(self.are_there))

    def spawn_stub(self, order: StubSpec) -> None:
        self.spawned.append(order.serial)

    def signal(self, serial: int, number: int, group: bool = False) -> None:
        self.killed.append(serial)


@pytest.fixture
def midwife() -> Midwife:
    return Midwife()


@pytest.fixture
def births(midwife: Midwife) -> ForkServer:
    return ForkServer(midwife, lambda: midwife.now_s)


def order(serial: int, environment: Environment = SERVERS_OWN) -> StubSpec:
    return StubSpec(serial, environment, Stub("m", "m_0_0"), -1)


def test_at_the_start_stubs_wait_until_the_nursery_is_ready(
    births: ForkServer, midwife: Midwife
) -> None:
    births.started(NURSERY)
    births.want(order(7))
    assert not midwife.asked

    births.ready()
    births.answered(7, 700)

    assert 700 == midwife.asked[7].pid
    assert [] == midwife.spawned
    assert not births.is_under_way


def test_another_environment_is_no_business_of_the_nursery(
    births: ForkServer, midwife: Midwife
) -> None:
    births.started(NURSERY)
    births.ready()

    births.want(order(7, Environment("/opt/python")))

    assert ([7], {}) == (midwife.spawned, midwife.asked)


def test_without_a_nursery_stubs_are_spawned(births: ForkServer, midwife: Midwife) -> None:
    births.want(order(7))

    assert [7] == midwife.spawned


def test_what_a_dead_nursery_owes_is_spawned(births: ForkServer, midwife: Midwife) -> None:
    births.started(NURSERY)
    births.ready()
    births.want(order(7))
    births.want(order(8))
    births.answered(7, 700)

    births.ended()

    assert [8] == midwife.spawned
    assert (False, True) == (midwife.asked[7].is_dropped, midwife.asked[8].is_dropped)


def test_nobody_waits_for_the_next_nursery(births: ForkServer, midwife: Midwife) -> None:
    births.started(NURSERY)
    births.ready()
    births.ended()

    births.started(NURSERY)
    births.want(order(7))
    assert [7] == midwife.spawned

    births.ready()
    births.want(order(8))
    assert [8] == list(midwife.asked)


def test_who_waits_for_a_nursery_that_never_comes_is_spawned(
    births: ForkServer, midwife: Midwife
) -> None:
    births.started(NURSERY)
    births.want(order(7))

    births.tick(1.0)
    assert [] == midwife.spawned

    births.tick(60.0)
    assert ([7], [NURSERY]) == (midwife.spawned, midwife.killed)


def test_a_nursery_that_does_not_answer_is_killed_and_the_stub_spawned(
    births: ForkServer, midwife: Midwife
) -> None:
    births.started(NURSERY)
    births.ready()
    births.want(order(7))

    births.tick(60.0)
    births.answered(7, 700)

    assert ([7], [NURSERY]) == (midwife.spawned, midwife.killed)
    assert (0, True) == (midwife.asked[7].pid, midwife.asked[7].is_dropped)


def test_a_nursery_that_cannot_fork_says_so_and_the_stub_is_spawned(
    births: ForkServer, midwife: Midwife
) -> None:
    births.started(NURSERY)
    births.ready()
    births.want(order(7))

    births.answered(7, 0)

    assert ([7], []) == (midwife.spawned, midwife.killed)
    assert midwife.asked[7].is_dropped


def test_a_stub_that_is_not_there_is_spawned(births: ForkServer, midwife: Midwife) -> None:
    midwife.are_there = False
    births.started(NURSERY)
    births.ready()
    births.want(order(7))

    births.answered(7, 700)

    assert [7] == midwife.spawned


def test_where_descriptors_are_short_the_stub_is_spawned(
    births: ForkServer, midwife: Midwife
) -> None:
    midwife.has_descriptors = False
    births.started(NURSERY)
    births.ready()

    births.want(order(7))

    assert [7] == midwife.spawned
    assert not births.is_under_way


def test_at_the_end_nothing_is_kept_for_the_unborn(births: ForkServer, midwife: Midwife) -> None:
    pages = [os.open("/dev/null", os.O_RDONLY) for _ in range(2)]
    births.started(NURSERY)
    births.want(order(7)._replace(page=pages[0]))
    births.ready()
    births.want(order(8)._replace(page=pages[1]))

    births.close()

    assert midwife.asked[7].is_dropped
    assert midwife.asked[8].is_dropped
    for page in pages:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(page)
