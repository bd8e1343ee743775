"""The table of machines, its page, and the drive in two of them."""

from __future__ import annotations

import pytest

from tests.faults.machines.__main__ import Outcome, visit
from tests.faults.machines.machine import Machine, why_none
from tests.faults.machines.table import MACHINES, PAGE, ROWS, page_text
from tests.support.needs import skip_missing


def test_the_page_has_the_table() -> None:
    assert page_text() == PAGE.read_text("utf-8"), "run: make faults OF=machines ARGS=--page"


def test_each_machine_has_a_name_of_its_own_and_what_it_says() -> None:
    assert len(ROWS) == len(MACHINES) == len({row.text for row in ROWS})
    assert [] == [row.name for row in ROWS if bool(row.sentence) != bool(row.shown)]


def test_a_machine_that_is_not_as_the_table_says_shows_the_end_of_its_log() -> None:
    machine = Machine("odd", "An odd machine", sentence="no .* here", shown="no room here")
    log = "+---+\n| a |\n+---+\n\nI1125 ready\n"

    text = Outcome(machine, error="told, and ready", log=log).text()

    assert ["odd", "FAILED:", "told,", "and", "ready", "I1125", "ready"] == text.split()
    assert machine.is_said_in("error: no room here")
    assert not machine.is_said_in(log)
    assert "left out: gcc is missing" in Outcome(machine, missing="gcc is missing").text()


@pytest.mark.system
@pytest.mark.parametrize(
    "name",
    [
        "small-files",
        pytest.param(
            "plain",
            marks=pytest.mark.long(
                "faults/machines/test_machines.py::test_a_machine_is_as_the_table_says"
            ),
        ),
    ],
)
def test_a_machine_is_as_the_table_says(name: str) -> None:
    if reason := why_none() or MACHINES[name].missing():
        skip_missing(reason)

    outcome = visit(MACHINES[name])

    assert not outcome.error, outcome.text()
