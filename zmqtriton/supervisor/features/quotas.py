"""Describes the limits of models for operators, with their use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton.config.parameters import (
    CPU_WEIGHT,
    MAX_EXECUTIONS_PER_SECOND,
    MAX_MEMORY_BYTES,
    MAX_SEGMENT_BYTES,
    USUAL_CPU_WEIGHT,
    Quota,
)
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton.supervisor.settings import ServerInfo


class QuotaReport(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._info = core.info
        self._generations = core.server.generations

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Describe the limits of models; empty without any."""
        quotas = [generation.blueprint.quota for generation in self._generations.values()]
        rows = describe_quotas(quotas, self._info, counts)
        return {"quotas": rows, "quotas_kept_by": self._info.quotas_kept_by()} if rows else {}


def describe_quotas(
    quotas: Iterable[Quota],
    server: ServerInfo,
    counts: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return a row for each limit of a model; `counts` are the broker's, by version."""
    rows = [
        _row(quota.model, *entry)
        for quota in sorted(set(quotas))
        for entry in _limits(quota, server)
    ]
    return sorted([*rows, *_paces(counts)], key=lambda row: str(row["model"]))


def _limits(quota: Quota, server: ServerInfo) -> Iterator[tuple[Any, ...]]:
    if quota.max_segment_bytes:
        use = server.quota_use(quota.model)
        yield MAX_SEGMENT_BYTES, quota.max_segment_bytes, use.segment_bytes, use.segment_refusals
    if quota.max_memory_bytes:
        use = server.quota_use(quota.model)
        yield MAX_MEMORY_BYTES, quota.max_memory_bytes, use.memory_bytes, use.memory_excesses
    if quota.cpu_weight != USUAL_CPU_WEIGHT:
        yield CPU_WEIGHT, quota.cpu_weight, None, None


def _paces(counts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model with a limited rate, which its versions share."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in counts:
        pace, model = entry.get("pace"), entry["model"]
        if pace is None:
            continue
        row = rows.setdefault(model, _row(model, MAX_EXECUTIONS_PER_SECOND, 0, 0, 0))
        row["limit"], row["used"] = pace["per_second"], pace["last_second"]
        row["exceeded"] += pace["refused"]
    return list(rows.values())


def _row(
    model: str, quota: str, limit: float, used: int | None, exceeded: int | None
) -> dict[str, Any]:
    """Return a row; None if there is nothing to count."""
    return {"model": model, "quota": quota, "limit": limit, "used": used, "exceeded": exceeded}
