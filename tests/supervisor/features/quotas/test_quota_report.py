"""The limits of models as operators see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton.config.parameters import Quota, QuotaUse
from zmqtriton.supervisor.features.quotas import describe_quotas


@pytest.mark.row("L22")
def test_each_limit_is_a_row() -> None:
    quotas = [Quota("m", 100, 200, 300), Quota("m", 100, 200, 300), Quota("free")]

    server: Any = SimpleNamespace(quota_use=lambda model: QuotaUse(1, 2, 3, 4))
    rows = describe_quotas(quotas, server, [])

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

    server: Any = None
    [row] = describe_quotas([], server, counts)

    assert ("m", "max_executions_per_second", 2.0, 1, 6) == tuple(row.values())
