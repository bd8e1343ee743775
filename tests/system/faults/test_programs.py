"""Random programs next to an oracle; minutes of them with `make programs SEED=… MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.programs import repository
from tests.faults.programs.drawing import Program
from tests.faults.programs.plan import Plan
from tests.faults.programs.report import Report
from tests.faults.programs.world import World

pytestmark = pytest.mark.system

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


def test_a_wrong_array_is_found_and_named(tmp_path: Path) -> None:
    report = Report()
    meant = Program("p0", steps=[["mark", "i0", 3], ["send", ["i0"]]])
    world = World(Plan(1, 0, 30, ("http",), clients=1), report, tmp_path, [meant])
    other = Program("p0", steps=[["send", ["i0"]]])
    repository.fill(world.server.repository / "p0" / "1", other, world.server.scratch)

    world.run()

    assert report.wrong.total() == report.answered > 0
    assert "element 0 is element 0 of input 0 of call 1; expected is" in report.descriptions[0]
    assert "of call 1, marks 3" in report.descriptions[0]
