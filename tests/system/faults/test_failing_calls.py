"""System calls of the server's processes fail, as on a machine that is short of something."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.faults import failing_calls
from tests.support.failing import FailingCalls
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "system/faults/test_memory_shortage.py::test_a_process_without_descriptors_refuses_what_needs_one",
        "system/faults/test_descriptors.py::test_a_load_that_needs_more_descriptors_is_refused_with_the_numbers",
        "system/faults/test_memory_shortage.py::test_a_process_without_room_refuses_what_is_too_large",
    ),
]


@pytest.fixture(scope="module")
def under_load(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, FailingCalls]]:
    """One server for all roles: after each fault it is whole."""
    with failing_calls.server_under_load(tmp_path_factory.mktemp("failing")) as pair:
        yield pair


@pytest.mark.parametrize("role", failing_calls.ROLES)
def test_the_server_is_whole_again_after_calls_of_a_process_have_failed(
    under_load: tuple[Server, FailingCalls], role: str
) -> None:
    chance = random.Random(role)
    faults = [fault for fault in failing_calls.all_faults() if fault.role == role]

    results = list(failing_calls.sweep(*under_load, chance.sample(faults, 3), random.Random(1)))

    assert [] == [r for r in results if r.whole_ms > 60_000]
