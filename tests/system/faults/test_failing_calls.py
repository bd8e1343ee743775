"""System calls of the server's processes fail, as on a machine that is short of something."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import failing_calls

pytestmark = pytest.mark.system


@pytest.mark.parametrize("role", failing_calls.ROLES)
def test_the_server_is_whole_again_after_calls_of_a_process_have_failed(
    tmp_path: Path, role: str
) -> None:
    chance = random.Random(role)
    faults = [fault for fault in failing_calls.all_faults() if fault.role == role]

    results = failing_calls.run(chance.sample(faults, 3), 1, tmp_path)

    assert [] == [r for r in results if r.whole_ms > 60_000]
