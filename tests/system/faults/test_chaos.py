"""Faults of a server that is steered; minutes of it with `make faults SEED=… MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import chaos
from tests.faults.days.steps import Step, TimedFault
from tests.support.foreign_sockets import needs_pidfd_getfd

pytestmark = [
    pytest.mark.system,
    needs_pidfd_getfd,
    pytest.mark.long(
        "system/faults/test_forks.py::test_a_killed_stub_costs_what_it_executed_and_nothing_else",
        "system/faults/test_broker_death.py::test_a_killed_broker_costs_nothing_that_was_not_being_executed",
        "system/faults/test_broker_death.py::test_a_killed_http_process_costs_its_connections",
        "system/faults/test_broker_death.py::test_a_killed_grpc_process_is_replaced",
        "system/loads/test_steering.py::test_code_is_rolled_out_without_a_failed_request",
    ),
]

#: What is asked of the server, and what befalls it meanwhile.
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


@pytest.mark.parametrize(("mode", "day"), [("explicit", EXPLICIT), ("poll", POLL)])
def test_a_server_that_is_steered_stands_faults(
    tmp_path: Path, mode: str, day: tuple[tuple[tuple[str, ...], str], ...]
) -> None:
    steps = [
        Step(number, operations, (TimedFault(0.03, fault),))
        for number, (operations, fault) in enumerate(day)
    ]

    assert 0 == chaos.run(chaos.Plan(7, 10.0, mode, steps=steps, pause_s=0.05), tmp_path)
