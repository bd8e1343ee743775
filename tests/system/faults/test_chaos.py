"""Faults by chance and at each moment; minutes of them with `make faults SEED=… MINUTES=…`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import chaos, failing_calls
from tests.faults.days.steps import Step, TimedFault
from tests.support.failing import FailingCalls
from tests.support.foreign_sockets import needs_pidfd_getfd
from tests.support.server import Server

pytestmark = pytest.mark.system

#: What is asked of a server that is steered, and what befalls it meanwhile.
EXPLICIT = (
    (("scale journal",), "kill a stub"),
    (("roll", "unload and load"), "kill http"),
    (("canary",), "kill grpc"),
    (("roll", "scale sequences"), "kill broker"),
    (("scale forked", "configure threaded"), "kill template"),
    (("drain an instance of threaded",), "kill a stub"),
    # of a process of HTTP, and of gRPC
    ((), "tear a connection"),
    ((), "strange bytes"),
)
POLL = ((("roll", "remove and return"), "kill http"),)


@needs_pidfd_getfd
@pytest.mark.long(
    "system/faults/test_forks.py::test_a_killed_stub_costs_what_it_executed_and_nothing_else",
    "system/faults/test_broker_death.py::test_a_killed_broker_costs_nothing_that_was_not_being_executed",
    "system/faults/test_broker_death.py::test_a_killed_http_process_costs_its_connections",
    "system/faults/test_broker_death.py::test_a_killed_grpc_process_is_replaced",
    "system/loads/test_steering.py::test_code_is_rolled_out_without_a_failed_request",
)
@pytest.mark.parametrize(("mode", "day"), [("explicit", EXPLICIT), ("poll", POLL)])
def test_a_server_that_is_steered_stands_faults(
    tmp_path: Path, mode: str, day: tuple[tuple[tuple[str, ...], str], ...]
) -> None:
    steps = [
        Step(number, operations, (TimedFault(0.03, fault),))
        for number, (operations, fault) in enumerate(day)
    ]

    assert 0 == chaos.run(chaos.Plan(7, 10.0, mode, steps=steps, pause_s=0.05), tmp_path)


# ------------------------------------------------------------------------------------ failing calls
# System calls of the server's processes fail, as on a machine that is short of something.


@pytest.fixture(scope="module")
def under_load(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, FailingCalls]]:
    """One server for all roles: after each fault it is whole."""
    with failing_calls.server_under_load(tmp_path_factory.mktemp("failing")) as pair:
        yield pair


@pytest.mark.long(
    "system/faults/test_memory_shortage.py::test_a_process_without_descriptors_refuses_what_needs_one",
    "system/faults/test_machines.py::test_a_load_that_needs_more_descriptors_is_refused_with_the_numbers",
    "system/faults/test_memory_shortage.py::test_a_process_without_room_refuses_what_is_too_large",
)
@pytest.mark.parametrize("role", failing_calls.ROLES)
def test_the_server_is_whole_again_after_calls_of_a_process_have_failed(
    under_load: tuple[Server, FailingCalls], role: str
) -> None:
    chance = random.Random(role)
    faults = [fault for fault in failing_calls.all_faults() if fault.role == role]

    results = list(failing_calls.sweep(*under_load, chance.sample(faults, 3), random.Random(1)))

    assert [] == [r for r in results if r.whole_ms > 60_000]
