"""The limits of models as operators see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from zmqtriton.config.parameters import Quota, QuotaUse
from zmqtriton_standard.control_groups.report import QuotaReport


def describe(quotas: list[Quota], counts: list[dict[str, Any]] | None = None) -> Any:
    generations = {
        n: SimpleNamespace(blueprint=SimpleNamespace(quota=q)) for n, q in enumerate(quotas)
    }
    info = SimpleNamespace(quota_use=lambda model: QuotaUse(1, 2, 3, 4), quotas_kept_by=str)
    server = SimpleNamespace(generations=generations)
    return QuotaReport(core_parts(info=info, server=server)).describe(counts or [])["quotas"]


@pytest.mark.row("L22")
def test_each_limit_is_a_row() -> None:
    rows = describe([Quota("m", 100, 200, 300), Quota("m", 100, 200, 300), Quota("free")])

    assert [
        ("m", "max_segment_bytes", 100, 1, 2),
        ("m", "max_memory_bytes", 200, 3, 4),
        ("m", "cpu_weight", 300, None, None),
    ] == [tuple(row.values()) for row in rows]


@pytest.mark.row("L22")
def test_versions_share_a_pace_and_are_refused_each_by_itself() -> None:
    pace = {"per_second": 2.0, "last_second": 1, "refused": 3}
    counts: list[dict[str, Any]] = [
        {"model": "m", "pace": pace},
        {"model": "m", "pace": pace},
        {"model": "free"},
    ]

    [row] = describe([], counts)

    assert ("m", "max_executions_per_second", 2.0, 1, 6) == tuple(row.values())
