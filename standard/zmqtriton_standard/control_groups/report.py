"""Describes the limits of models for operators, with their use. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import Quota
from zmqtriton.sdk.supervisor import CoreParts, Feature

_PACE = "max_executions_per_second"


class QuotaReport(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._generations = core.server.generations
        self._use_of, self._kept_by = core.info.quota_use, core.info.quotas_kept_by

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a row for each limit of a model, from the broker's counts as well."""
        quotas = {generation.blueprint.quota for generation in self._generations.values()}
        rows = [row for quota in sorted(quotas) for row in self._limits(quota)]
        rows = sorted([*rows, *_paces(counts)], key=lambda row: str(row["model"]))
        return {"quotas": rows, "quotas_kept_by": self._kept_by()} if rows else {}

    def _limits(self, quota: Quota) -> Iterator[dict[str, Any]]:
        use = self._use_of(quota.model)
        figures: dict[str, tuple[int | None, int | None]] = {
            "max_segment_bytes": (use.segment_bytes, use.segment_refusals),
            "max_memory_bytes": (use.memory_bytes, use.memory_excesses),
            "cpu_weight": (None, None),
        }
        for name, counted in figures.items():
            limit = getattr(quota, name)
            if limit != getattr(Quota(), name):
                yield _row(quota.model, name, limit, *counted)


def _paces(counts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model with a limited rate, which its versions share."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in counts:
        pace, model = entry.get("pace"), entry["model"]
        if pace is None:
            continue
        row = rows.setdefault(model, _row(model, _PACE, 0, 0, 0))
        row["limit"], row["used"] = pace["per_second"], pace["last_second"]
        row["exceeded"] += pace["refused"]
    return list(rows.values())


def _row(
    model: str, quota: str, limit: float, used: int | None, exceeded: int | None
) -> dict[str, Any]:
    """Return a row; None if there is nothing to count."""
    return {"model": model, "quota": quota, "limit": limit, "used": used, "exceeded": exceeded}
