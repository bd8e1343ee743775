"""What explain says of canaries, from answers of a server that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.standard.tools.explaining.test_findings import READY, stub
from zmqtriton.findings import Finding
from zmqtriton_extras.canaries import explaining
from zmqtriton_standard.tools.explaining import findings as standard
from zmqtriton_standard.tools.explaining.facts import Facts


def find_all(facts: Facts) -> list[Finding]:
    return standard.find_all(replace(facts, of_add_ons=[(explaining, None)]))


def test_the_end_of_a_trial_is_told() -> None:
    canary = {"model": "m", "stable": 1, "canary": 2, "phase": "ABORTED", "reason": "it failed"}
    status = {"canaries": {"models": [{**canary, "weight": 10.0, "shadow": 5.0}]}}

    *_, tried = find_all(Facts("m", index=[READY], status=status))

    text = "the trial of version 2 was aborted: it failed; version 1 gets all requests"
    assert text == tried.text


def test_a_canary_of_a_model_that_is_well_is_told_last() -> None:
    canary = {"model": "m", "stable": 1, "canary": 2, "phase": "RUNNING", "weight": 10.0}
    status = {"processes": [stub()], "canaries": {"models": [canary]}}

    well, tried = find_all(Facts("m", index=[READY], status=status))

    assert "nothing is wrong" in well.text
    assert "canary, running; 10 % of the requests" in tried.text


@pytest.mark.parametrize(
    ("uncopied", "said"),
    [(104, "Of these, models or ensembles have asked 104"), (0, "Copies are skipped while")],
)
def test_a_canary_that_gets_no_copies_is_no_trial(uncopied: int, said: str) -> None:
    compared = {"equal": 0, "different": 0, "failed": 0, "skipped": 104, "uncopied": uncopied}
    canary = {"model": "m", "stable": 1, "canary": 2, "phase": "RUNNING", "weight": 0.0}
    canary |= {"shadow": 100.0, "comparisons": compared}

    def findings() -> list[Finding]:
        return find_all(Facts("m", index=[READY], status={"canaries": {"models": [canary]}}))

    untried = findings()[-1]
    assert "version 2 is not tried: none of 104 requests was copied" == untried.text
    assert untried.advice.startswith(said)
    assert "zmqtriton-ctl canary weight m 5" == untried.commands[0]
    compared["equal"] = 1
    assert "not tried" not in findings()[-1].text
