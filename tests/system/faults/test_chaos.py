"""Faults of a server that is steered; minutes of it with `make faults SEED=… MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import chaos
from tests.faults.days.steps import Step, TimedFault
from tests.support.foreign_sockets import needs_pidfd_getfd

pytestmark = [pytest.mark.system, needs_pidfd_getfd]

#: What is asked of the server, and what befalls it meanwhile.
EXPLICIT = (
    (("scale journal",), "kill a stub"),
    (("roll", "unload and load"), "kill http"),
    (("canary",), "kill grpc"),
    (("roll", "scale sequences"), "kill broker"),
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
