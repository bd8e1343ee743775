"""The same arrivals form the same batches as in real Triton.

Their sizes, how often each was executed, the counters, and the order in which the model saw the
requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance import batches, lists
from tests.conformance.arrivals import Configuration
from tests.conformance.configurations import CONFIGURATIONS

NAMES = [each.name for each in CONFIGURATIONS]


@pytest.mark.long(
    "broker/scheduling/test_batching.py::test_a_delay_collects_until_it_has_passed",
    "broker/scheduling/test_batching.py::test_the_largest_preferred_size_that_is_there_is_taken",
    "broker/scheduling/test_queue_policy.py::test_higher_priorities_go_first_and_each_in_the_order_it_came",
    "broker/sequences/test_sequences.py::test_a_batch_of_the_oldest_waits_for_its_preferred_size",
)
@pytest.mark.system
@pytest.mark.row("E60", "E65", "E73")
def test_the_batches_are_tritons(tmp_path: Path) -> None:
    # More than one where Triton's own threads race, or where we differ on purpose.
    allowed = {
        name: [entry["ours"]] if "ours" in entry else entry["triton"]
        for name, entry in batches.recorded().items()
    }

    got: dict[str, Any] = {}

    def differing() -> list[Configuration]:
        return [each for each in CONFIGURATIONS if got.get(each.name) not in allowed[each.name]]

    # Where the machine is busy, requests may come too late for a batch that waits for them.
    for turn in range(4):
        if differing():
            got |= batches.play_ours(tmp_path / str(turn), differing())

    assert {} == {each.name: (allowed[each.name], got[each.name]) for each in differing()}


def test_what_differs_from_triton_is_listed_as_meant() -> None:
    recorded = batches.recorded()

    differing = [name for name in NAMES if "ours" in recorded[name]]

    text = lists.DIFFERENCES.with_name("differences.md").read_text("utf-8")
    assert [] == [name for name in differing if f"`{name}`" not in text]
    assert len(differing) * 5 < len(NAMES)
    assert set(NAMES) == set(recorded)
