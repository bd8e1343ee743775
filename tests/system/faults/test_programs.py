"""Random programs next to an oracle; minutes of them with `make programs SEED=… MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.programs.plan import Plan
from tests.faults.programs.report import Report
from tests.faults.programs.world import World

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "faults/programs/test_oracle.py::test_a_seed_draws_the_same_programs_each_time_and_the_oracle_knows_them",
        "faults/programs/test_oracle.py::test_an_element_names_its_call_input_and_place",
    ),
]

#: Ways of clients, and kinds of steps and models.
FEATURES = (
    *("http", "grpc", "tritonclient", "stream", "json", "generate", "sockets", "regions"),
    *("lent", "region_streams", "guests"),
    *("bls", "ensembles", "keeps", "passing", "twins", "async", "decoupled", "sequences"),
)


def test_random_programs_answer_as_the_oracle_does(tmp_path: Path) -> None:
    report = Report()

    World(Plan(1, 0, 400, FEATURES), report, tmp_path).run()

    assert report.is_good, (report.descriptions, report.errors, report.unanswered)
    assert report.answered > 200
    assert report.looks > report.answered
