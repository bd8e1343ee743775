"""Random faults against mixed load; minutes of it with `make faults SEED=… MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import chaos
from tests.support.foreign_sockets import needs_pidfd_getfd

pytestmark = [pytest.mark.system, needs_pidfd_getfd]


def test_the_server_stands_a_few_random_faults(tmp_path: Path) -> None:
    assert 0 == chaos.run(chaos.Plan(seed=7, minutes=0.25), tmp_path)
