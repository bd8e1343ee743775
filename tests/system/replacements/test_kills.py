"""One of two servers is killed while it replaces the other or is replaced: the other serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.replacements.kills import Kill, kill_under_load
from tests.faults.replacements.ways import ByTakeOver
from tests.system.replacements.replacing import FEW

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "supervisor/control/test_succession.py::test_a_new_server_that_dies_leaves_nothing_behind",
        "system/replacements/test_under_load.py::test_a_server_is_replaced_without_a_failed_request",
    ),
]


@pytest.mark.parametrize(
    "kill", [Kill(True, "it loads its models"), Kill(False, "it has loaded them")], ids=str
)
def test_the_other_server_serves_if_one_is_killed(tmp_path: Path, kill: Kill) -> None:
    way = ByTakeOver(tmp_path)
    way.start()
    try:
        crowd, wrong, serves = asyncio.run(kill_under_load(way, kill, FEW, pause_s=1.0))
    finally:
        way.close()

    assert [] == wrong
    assert serves
    assert [] == [each.label for each in crowd if not each.right]
