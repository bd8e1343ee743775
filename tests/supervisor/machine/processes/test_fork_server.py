from __future__ import annotations

import os

import pytest

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment
from zmqtriton.logs.log_ring import StubName
from zmqtriton.supervisor.machine.processes.fork_server import ForkServerLife, StubSpec

pytestmark = pytest.mark.slow

FORK_SERVER, SPARE = 1, 2
OTHER = Environment("/opt/python")


class FakePendingStub:
    def __init__(self, is_there: bool) -> None:
        self._is_there = is_there
        self.pid = 0
        self.is_dropped = False

    def adopt(self, pid: int) -> None:
        if not self._is_there:
            raise ProcessLookupError
        self.pid = pid

    def drop(self) -> None:
        self.is_dropped = True


class FakeSpawner:
    """Remembers what it was asked to do."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pending: dict[int, FakePendingStub] = {}
        self.origins: dict[int, int] = {}
        self.spawned: list[int] = []
        self.killed: list[int] = []
        self.are_there = True
        self.has_descriptors = True

    def request_fork(self, fork_server: int, spec: StubSpec) -> FakePendingStub:
        assert fork_server in (FORK_SERVER, SPARE)
        self.origins[spec.serial] = fork_server
        if not self.has_descriptors:
            raise OSError
        return self.pending.setdefault(spec.serial, FakePendingStub(self.are_there))

    def spawn_stub(self, spec: StubSpec) -> None:
        self.spawned.append(spec.serial)

    def kill(self, serial: int, reason: str) -> None:
        self.killed.append(serial)


@pytest.fixture
def spawner() -> FakeSpawner:
    return FakeSpawner()


@pytest.fixture
def fork_server(spawner: FakeSpawner) -> ForkServerLife:
    return ForkServerLife(spawner, lambda: spawner.now_s)


def spec_of(serial: int, environment: Environment = SERVER_ENVIRONMENT) -> StubSpec:
    return StubSpec(serial, environment, StubName("m", "m_0_0"), -1)


def test_at_the_start_stubs_wait_until_the_fork_server_is_ready(
    fork_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    fork_server.started(FORK_SERVER)
    fork_server.start(spec_of(7))
    assert not spawner.pending

    fork_server.ready()
    fork_server.answered(7, 700)

    assert (700, []) == (spawner.pending[7].pid, spawner.spawned)
    assert not fork_server.is_under_way


@pytest.fixture
def ready_server(fork_server: ForkServerLife) -> ForkServerLife:
    """One that forks."""
    fork_server.started(FORK_SERVER)
    fork_server.ready()
    return fork_server


def test_another_environment_is_no_business_of_the_fork_server(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7, OTHER))

    assert ([7], {}) == (spawner.spawned, spawner.pending)


def test_without_a_fork_server_stubs_are_spawned(
    fork_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    fork_server.start(spec_of(7))

    assert [7] == spawner.spawned


def test_what_a_dead_fork_server_owes_is_spawned(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7))
    ready_server.start(spec_of(8))
    ready_server.answered(7, 700)

    ready_server.ended(FORK_SERVER)

    assert [8] == spawner.spawned
    assert (False, True) == (spawner.pending[7].is_dropped, spawner.pending[8].is_dropped)


def test_nobody_waits_for_the_next_fork_server(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.ended(FORK_SERVER)

    ready_server.started(FORK_SERVER)
    ready_server.start(spec_of(7))
    assert [7] == spawner.spawned

    ready_server.ready()
    ready_server.start(spec_of(8))
    assert [8] == list(spawner.pending)


def test_who_waits_for_a_fork_server_that_never_comes_is_spawned(
    fork_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    fork_server.started(FORK_SERVER)
    fork_server.start(spec_of(7))

    fork_server.tick(1.0)
    assert [] == spawner.spawned

    fork_server.tick(60.0)
    assert ([7], [FORK_SERVER]) == (spawner.spawned, spawner.killed)


def test_a_fork_server_that_does_not_answer_is_killed_and_the_stub_spawned(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7))

    ready_server.tick(60.0)
    ready_server.answered(7, 700)

    assert ([7], [FORK_SERVER]) == (spawner.spawned, spawner.killed)
    assert (0, True) == (spawner.pending[7].pid, spawner.pending[7].is_dropped)


def test_a_fork_server_that_cannot_fork_says_so_and_the_stub_is_spawned(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7))

    ready_server.answered(7, 0)

    assert ([7], []) == (spawner.spawned, spawner.killed)
    assert spawner.pending[7].is_dropped


def test_a_stub_that_is_not_there_is_spawned(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    spawner.are_there = False
    ready_server.start(spec_of(7))

    ready_server.answered(7, 700)

    assert [7] == spawner.spawned


def test_where_descriptors_are_short_the_stub_is_spawned(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    spawner.has_descriptors = False

    ready_server.start(spec_of(7))

    assert [7] == spawner.spawned
    assert not ready_server.is_under_way


def test_at_the_end_nothing_is_kept_for_the_unborn(
    fork_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    pages = [os.open("/dev/null", os.O_RDONLY) for _ in range(2)]
    fork_server.started(FORK_SERVER)
    fork_server.start(spec_of(7)._replace(page=pages[0]))
    fork_server.ready()
    fork_server.start(spec_of(8)._replace(page=pages[1]))

    fork_server.close()

    assert spawner.pending[7].is_dropped
    assert spawner.pending[8].is_dropped
    for page in pages:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(page)


@pytest.mark.parametrize("environment", [SERVER_ENVIRONMENT, OTHER])
def test_a_spare_process_forks_the_stubs_that_are_assigned_to_it(
    ready_server: ForkServerLife, spawner: FakeSpawner, environment: Environment
) -> None:
    ready_server.start(spec_of(7, environment)._replace(spare=SPARE))
    ready_server.answered(7, 700)

    assert ({7: SPARE}, []) == (spawner.origins, spawner.spawned)
    assert 700 == spawner.pending[7].pid


def test_a_pinned_stub_is_not_forked_from_a_spare_process(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7)._replace(spare=SPARE, cores=(0,)))

    assert {7: FORK_SERVER} == spawner.origins


def test_a_stub_that_a_spare_process_refuses_comes_from_the_fork_server(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7)._replace(spare=SPARE))
    ready_server.start(spec_of(8, OTHER)._replace(spare=SPARE))

    for serial in (7, 8):
        ready_server.answered(serial, 0)

    assert ({7: FORK_SERVER, 8: SPARE}, [8]) == (spawner.origins, spawner.spawned)


def test_a_spare_process_that_is_late_is_killed_and_the_fork_server_is_not(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7, OTHER)._replace(spare=SPARE))

    ready_server.tick(60.0)
    ready_server.start(spec_of(8))

    assert ([7], [SPARE]) == (spawner.spawned, spawner.killed)
    assert FORK_SERVER == spawner.origins[8]


def test_the_death_of_a_spare_process_leaves_the_stubs_of_the_fork_server_alone(
    ready_server: ForkServerLife, spawner: FakeSpawner
) -> None:
    ready_server.start(spec_of(7))
    ready_server.start(spec_of(8, OTHER)._replace(spare=SPARE))

    ready_server.ended(SPARE)

    assert [8] == spawner.spawned
    assert not spawner.pending[7].is_dropped
