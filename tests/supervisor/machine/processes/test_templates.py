from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.supervisor.machine.processes.test_fork_server import FakePendingStub
from zmqtriton.environments.demand import SERVER_ENVIRONMENT
from zmqtriton.logs.log_ring import StubName
from zmqtriton.supervisor.actions import Template
from zmqtriton.supervisor.machine.processes.fork_server import StubSpec
from zmqtriton.supervisor.machine.processes.templates import Templates
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason

NUMBER = 5
LOAD = wire.LoadModel("template", "m", 1, "CPU", 0, "/m", "/m/1/model.py", "{}", 0)
KILLED = Reason.of(Kind.KILLED, "killed by SIGKILL", signal="SIGKILL")


class FakeSpawner:
    """Remembers what was requested from it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.templates = 0
        self.requests: list[tuple[int, FakePendingStub]] = []
        self.origins: list[int] = []
        self.reports: list[tuple[int, wire.Kept]] = []
        self.failed: dict[int, tuple[wire.LoadFailed | None, str]] = {}
        self.killed: list[int] = []
        self.finalized: list[int] = []
        self.loads: list[int] = []
        self.are_there = True
        self.has_descriptors = True

    def spawn_template(self, spec: StubSpec) -> None:
        self.templates += 1

    def request_fork(self, fork_server: int, spec: StubSpec) -> FakePendingStub:
        self.origins.append(fork_server)
        if not self.has_descriptors:
            raise OSError("no descriptors")
        pending = FakePendingStub(self.are_there)
        self.requests.append((spec.serial, pending))
        return pending

    def fail_stub(self, serial: int, failure: wire.LoadFailed | None, reason: Reason) -> None:
        self.failed[serial] = failure, reason.text

    def signal(self, serial: int, number: int, group: bool = False) -> None:
        self.killed.append(serial)

    def send(self, serial: int, message: wire.LoadModel | wire.Finalize) -> None:
        (self.loads if isinstance(message, wire.LoadModel) else self.finalized).append(serial)

    def report(self, serial: int, message: wire.Kept) -> None:
        self.reports.append((serial, message))


@pytest.fixture
def spawner() -> FakeSpawner:
    return FakeSpawner()


@pytest.fixture
def templates(spawner: FakeSpawner) -> Templates:
    return Templates(spawner, lambda: spawner.now_s)


def spec_of(serial: int, load_within_s: float = 0.0, *, has_threads: bool = False) -> StubSpec:
    page = os.open(os.devnull, os.O_RDONLY)
    template = Template(NUMBER, LOAD, load_within_s, has_threads)
    name = StubName("m", f"m_0_{serial}", 1)
    return StubSpec(serial, SERVER_ENVIRONMENT, name, page, template=template)


@pytest.fixture
def forking(templates: Templates) -> Templates:
    """Templates of which one is there and forks stub 7."""
    templates.start(spec_of(7))
    templates.ready(NUMBER)
    return templates


@pytest.fixture
def beginning(templates: Templates) -> Templates:
    """Templates of which one is there and begins stub 7, a thread of it."""
    templates.start(spec_of(7, has_threads=True))
    templates.ready(NUMBER)
    return templates


def test_stubs_wait_for_one_template(templates: Templates, spawner: FakeSpawner) -> None:
    templates.start(spec_of(7))
    templates.start(spec_of(8))
    assert spawner.requests == []

    templates.ready(NUMBER)
    templates.start(spec_of(9))

    assert spawner.templates == 1
    assert [7, 8, 9] == [serial for serial, _ in spawner.requests]
    assert {NUMBER} == {*spawner.origins}
    assert templates.may_come(8)
    for serial, pending in spawner.requests:
        templates.answered(NUMBER, serial, serial * 100, "")
        assert pending.pid == serial * 100
    assert not templates.is_under_way


def test_a_template_is_told_what_to_load_if_it_is_still_wanted_when_it_runs(
    templates: Templates, spawner: FakeSpawner
) -> None:
    templates.start(spec_of(7))
    templates.started(NUMBER)
    assert ([NUMBER], []) == (spawner.loads, spawner.killed)
    templates.ended(NUMBER, KILLED)

    templates.start(spec_of(8))
    templates.kill(NUMBER, Reason.of(Kind.OTHER, "too much"))
    spawner.killed.clear()  # nobody can signal a process that is not known yet
    templates.started(NUMBER)
    assert ([NUMBER], [NUMBER]) == (spawner.loads, spawner.killed)
    templates.ended(NUMBER, KILLED)
    assert "the template that it is forked from: too much" == spawner.failed[8][1]

    templates.start(spec_of(9))
    templates.end(NUMBER)
    spawner.killed.clear()
    templates.started(NUMBER)
    assert ([NUMBER], [NUMBER]) == (spawner.loads, spawner.killed)


def test_what_a_template_says_is_what_its_stubs_fail_with(
    templates: Templates, spawner: FakeSpawner
) -> None:
    failure = wire.LoadFailed(Reason.of(Kind.OTHER, "ValueError: no weights"))
    templates.start(spec_of(7))

    templates.failed(NUMBER, failure)
    templates.ended(NUMBER, Reason.of(Kind.EXITED, "exited with status 0", status=0))

    assert ({7: (failure, "ValueError: no weights")}, 1) == (spawner.failed, spawner.templates)

    # a restart tries it again, and knows nothing of the last failure
    templates.start(spec_of(8))
    templates.ended(NUMBER, KILLED, "a last line")

    assert spawner.templates == 2
    expected = "the template that it is forked from: killed by SIGKILL: a last line"
    assert spawner.failed[8] == (None, expected)


def test_stubs_of_a_template_that_dies_while_it_forks_are_forked_of_the_next_one(
    forking: Templates, spawner: FakeSpawner
) -> None:

    forking.ended(NUMBER, KILLED)

    assert spawner.requests[0][1].is_dropped
    assert not forking.is_under_way
    assert spawner.templates == 2
    forking.ready(NUMBER)
    assert [7, 7] == [serial for serial, _ in spawner.requests]

    # twice is enough: the model may be what kills it
    forking.ended(NUMBER, KILLED)

    assert ([7], 2) == (list(spawner.failed), spawner.templates)


@pytest.mark.parametrize(("served_s", "count"), [(1.0, 1), (60.0, 2)])
def test_a_template_that_has_served_is_made_again_at_once(
    forking: Templates, spawner: FakeSpawner, served_s: float, count: int
) -> None:

    forking.answered(NUMBER, 7, 700, "")
    spawner.now_s = served_s

    forking.ended(NUMBER, KILLED)

    assert spawner.templates == count
    forking.start(spec_of(8))
    assert spawner.templates == 2


def test_stubs_that_cannot_be_forked_fail(forking: Templates, spawner: FakeSpawner) -> None:

    forking.answered(NUMBER, 7, 0, "cannot fork: no memory")

    spawner.has_descriptors = False
    forking.start(spec := spec_of(8))

    assert spawner.failed == {
        7: (None, "it cannot be started: cannot fork: no memory"),
        8: (None, "it cannot be started: no descriptors"),
    }
    assert not forking.is_under_way
    assert not os.path.exists(f"/proc/self/fd/{spec.page}")


def test_the_end_of_a_template_is_that_of_stubs_that_wait(
    templates: Templates, spawner: FakeSpawner
) -> None:
    templates.start(spec_of(7))

    templates.end(NUMBER)
    templates.end(NUMBER)
    templates.ended(NUMBER, KILLED)
    templates.answered(NUMBER, 7, 700, "")

    assert ([NUMBER], 1, [7]) == (spawner.killed, spawner.templates, list(spawner.failed))


def test_late_templates_are_killed(templates: Templates, spawner: FakeSpawner) -> None:
    templates.start(spec_of(7, load_within_s=5.0))
    templates.tick(4.0)
    assert spawner.killed == []

    templates.tick(5.0)
    templates.ended(NUMBER, KILLED)

    assert spawner.killed == [NUMBER]
    assert "took longer than max_load_seconds (5)" in spawner.failed[7][1]

    templates.start(spec_of(8))
    templates.ready(NUMBER)
    templates.tick(60.0)
    assert spawner.killed == [NUMBER, NUMBER]


def test_a_server_that_ends_forks_nothing(forking: Templates, spawner: FakeSpawner) -> None:
    forking.start(spec := spec_of(8))

    forking.close()

    assert [True, True] == [fork.is_dropped for _, fork in spawner.requests]
    assert not forking.is_under_way
    assert not os.path.exists(f"/proc/self/fd/{spec.page}")


def test_one_with_threads_ends_with_the_last_of_them(
    beginning: Templates, spawner: FakeSpawner
) -> None:

    beginning.answered(NUMBER, 7, 700, "")

    beginning.end(NUMBER)

    assert ([NUMBER], []) == (spawner.finalized, spawner.killed)


@pytest.mark.parametrize("is_ready", [False, True])
def test_one_with_threads_that_is_to_end_at_once_is_killed(
    templates: Templates, spawner: FakeSpawner, is_ready: bool
) -> None:
    templates.start(spec_of(7, has_threads=True))
    if is_ready:
        templates.ready(NUMBER)

    templates.end(NUMBER, at_once=is_ready)

    assert ([NUMBER], []) == (spawner.killed, spawner.finalized)


def test_threads_may_begin_late_as_another_may_hold_the_interpreter(
    beginning: Templates, spawner: FakeSpawner
) -> None:

    beginning.tick(1000.0)

    assert [] == spawner.killed
    beginning.answered(NUMBER, 7, 700, "")
    assert not beginning.is_under_way


def test_why_one_was_killed_is_why_its_threads_have_ended(
    beginning: Templates, spawner: FakeSpawner
) -> None:

    beginning.answered(NUMBER, 7, 700, "")
    verdict = Reason.of(Kind.OVER_MEMORY_QUOTA, "it used too much", limit=1)

    beginning.kill(NUMBER, verdict)

    assert [verdict, KILLED] == [beginning.ended(n, KILLED) for n in (NUMBER, NUMBER + 1)]


#: The template of changed code, a fork of NUMBER, and its first stub.
NEXT, STUB = 11, 12


def spec_of_next(origin: int = NUMBER) -> StubSpec:
    return spec_of(STUB)._replace(template=Template(NEXT, LOAD, origin=origin))


def test_the_template_of_changed_code_is_a_fork(forking: Templates, spawner: FakeSpawner) -> None:
    forking.answered(NUMBER, 7, 700, "")
    forking.start(spec_of_next())
    assert [(7, NUMBER), (NEXT, NUMBER)] == [
        (serial, origin)
        for (serial, _), origin in zip(spawner.requests, spawner.origins, strict=True)
    ]
    assert forking.may_come(NEXT)

    forking.answered(NUMBER, NEXT, 1100, "")
    forking.started(NEXT)
    forking.kept(NEXT, wire.Kept(1, "weights"))
    forking.ready(NEXT)

    assert ([NEXT], [(NEXT, wire.Kept(1, "weights"))]) == (spawner.loads, spawner.reports)
    assert [(7, NUMBER), (NEXT, NUMBER), (STUB, NEXT)] == [
        (serial, origin)
        for (serial, _), origin in zip(spawner.requests, spawner.origins, strict=True)
    ]
    forking.end(NUMBER)
    forking.answered(NEXT, STUB, 1200, "")
    assert (1, {}, [NUMBER]) == (spawner.templates, spawner.failed, spawner.killed)

    # a later death has nothing to do with it
    spawner.now_s = 60.0
    forking.ended(NEXT, KILLED)
    assert (2, 1) == (spawner.templates, len(spawner.reports))


def _say_why(templates: Templates, _: FakeSpawner) -> None:
    templates.answered(NUMBER, NEXT, 1100, "")
    templates.kept(NEXT, wire.Kept(0, "preload changed"))
    templates.ended(NEXT, KILLED)


def _die(templates: Templates, _: FakeSpawner) -> None:
    templates.answered(NUMBER, NEXT, 1100, "")
    templates.ended(NEXT, KILLED)


def _lose_origin(templates: Templates, _: FakeSpawner) -> None:
    templates.ended(NUMBER, KILLED)


def _end_origin(templates: Templates, _: FakeSpawner) -> None:
    templates.end(NUMBER)


def _refuse(templates: Templates, spawner: FakeSpawner) -> None:
    templates.answered(NUMBER, NEXT, 0, "cannot fork: no memory")


@pytest.mark.parametrize(
    ("happen", "why"),
    [
        (_say_why, "preload changed"),
        (_die, "the fork of the template that has it: killed by SIGKILL"),
        (_lose_origin, "the template that it is forked from: killed by SIGKILL"),
        (_end_origin, "its template was ended"),
        (_refuse, "it cannot be started: cannot fork: no memory"),
    ],
)
def test_without_what_was_preloaded_the_template_is_started_anew(
    forking: Templates,
    spawner: FakeSpawner,
    happen: Callable[[Templates, FakeSpawner], None],
    why: str,
) -> None:
    forking.answered(NUMBER, 7, 700, "")
    forking.start(spec_of_next())

    happen(forking, spawner)

    assert (2, [(NEXT, wire.Kept(0, why))]) == (spawner.templates, spawner.reports)
    forking.ready(NEXT)
    assert (STUB, NEXT) == (spawner.requests[-1][0], spawner.origins[-1])
    forking.answered(NEXT, STUB, 1200, "")
    assert ({}, False) == (spawner.failed, forking.is_under_way)


def test_a_template_that_is_dead_has_no_forks(templates: Templates, spawner: FakeSpawner) -> None:
    templates.start(spec_of_next(origin=3))

    assert (1, "the template that has it had died") == (
        spawner.templates,
        spawner.reports[0][1].text,
    )


def test_a_fork_that_has_failed_to_load_is_not_tried_again(
    forking: Templates, spawner: FakeSpawner
) -> None:
    forking.start(spec_of_next())
    forking.answered(NUMBER, NEXT, 1100, "")
    failure = wire.LoadFailed(Reason.of(Kind.OTHER, "SyntaxError"))

    forking.failed(NEXT, failure)
    forking.ended(NEXT, KILLED)

    assert ({STUB: (failure, "SyntaxError")}, 1) == (spawner.failed, spawner.templates)


@pytest.mark.parametrize("closes", [False, True])
def test_a_template_that_ends_before_it_is_forked_holds_nothing(
    forking: Templates, spawner: FakeSpawner, closes: bool
) -> None:
    forking.answered(NUMBER, 7, 700, "")
    forking.start(spec := spec_of_next())

    forking.close() if closes else forking.end(NEXT)

    assert spawner.requests[-1][1].is_dropped
    assert not forking.is_under_way
    assert not os.path.exists(f"/proc/self/fd/{spec.page}")


@pytest.fixture
def renewing(beginning: Templates) -> Templates:
    """Templates of which one has threads, and is asked to import the code of the next one."""
    beginning.answered(NUMBER, 7, 700, "")
    template = Template(NEXT, LOAD, has_threads=True, origin=NUMBER)
    beginning.start(spec_of(STUB)._replace(template=template))
    return beginning


def test_changed_code_with_threads_shares_the_process_of_the_earlier_code(
    renewing: Templates, spawner: FakeSpawner
) -> None:
    assert (NEXT, NUMBER) == (spawner.requests[-1][0], spawner.origins[-1])
    renewing.answered(NUMBER, NEXT, 500, "")
    assert (STUB, NUMBER) == (spawner.requests[-1][0], spawner.origins[-1])
    renewing.answered(NUMBER, STUB, 1200, "")

    # the process ends with the last of both
    renewing.end(NUMBER)
    assert ([], []) == (spawner.finalized, spawner.killed)
    renewing.end(NEXT)
    assert ([NUMBER], [], 1) == (spawner.finalized, spawner.killed, spawner.templates)
    assert [(NEXT, 1)] == [(serial, report.is_kept) for serial, report in spawner.reports]


def test_the_death_of_a_shared_process_starts_one_of_the_changed_code(
    renewing: Templates, spawner: FakeSpawner
) -> None:
    renewing.answered(NUMBER, NEXT, 500, "")
    renewing.answered(NUMBER, STUB, 1200, "")
    renewing.end(NUMBER)

    spawner.now_s = 60.0
    renewing.ended(NUMBER, KILLED)

    assert ({NEXT: (None, KILLED.text)}, 2) == (spawner.failed, spawner.templates)
    renewing.ready(NEXT)
    renewing.end(NEXT)
    assert [NEXT] == spawner.finalized


def _refuse_renewal(templates: Templates, _: FakeSpawner) -> None:
    templates.answered(NUMBER, NEXT, 0, "no adopt()")


def _be_late(templates: Templates, spawner: FakeSpawner) -> None:
    spawner.now_s = 31.0
    templates.tick(spawner.now_s)
    templates.answered(NUMBER, NEXT, 500, "")  # too late


@pytest.mark.parametrize(
    ("happen", "why"),
    [
        (_refuse_renewal, "no adopt()"),
        (_be_late, "the process of the earlier code has not imported it within 30 s"),
        (_lose_origin, "the process of its instances: killed by SIGKILL"),
    ],
)
def test_code_that_the_earlier_process_does_not_take_gets_a_new_one(
    renewing: Templates,
    spawner: FakeSpawner,
    happen: Callable[[Templates, FakeSpawner], None],
    why: str,
) -> None:
    happen(renewing, spawner)

    assert ([(NEXT, wire.Kept(0, why))], 2) == (spawner.reports, spawner.templates)
    renewing.ready(NEXT)
    assert (STUB, NEXT) == (spawner.requests[-1][0], spawner.origins[-1])
    renewing.answered(NEXT, STUB, 1200, "")
    assert ({}, []) == (spawner.failed, spawner.killed)
