"""The comparisons of a canary's answers with those of the stable version, as frontends tell them.

The numbers come from other processes, so each is checked. Does no I/O.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

#: What may come of a request that is to be copied: it is skipped if the stable version failed, if
#: too many copies are under way, or if it cannot be copied, as those of models.
RESULTS = ("equal", "different", "failed", "skipped")
_MAX_DIFFERENCES, _MAX_TEXT = 5, 300


class Comparisons:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Of those that were skipped, the requests of models and ensembles.
        self.uncopied = 0
        #: As the broker has counted them at the last look.
        self._uncopied_seen = 0
        #: The last differences, in words.
        self.differences: deque[str] = deque(maxlen=_MAX_DIFFERENCES)

    def add(self, report: Mapping[str, Any]) -> Counter[str]:
        """Add a frontend's counts, without values that are no numbers. Return the new counts."""
        counts = {result: report.get(result) for result in RESULTS}
        new = Counter({r: n for r, n in counts.items() if type(n) is int and n > 0})
        self.counts += new
        texts = report.get("differences")
        for text in texts[-_MAX_DIFFERENCES:] if isinstance(texts, list) else ():
            self._add_difference(_printable(str(text)[:_MAX_TEXT]))
        return new

    def add_uncopied(self, total: int) -> Counter[str]:
        """Add requests of models, as the broker has counted them; a new broker begins at 0."""
        more = total - self._uncopied_seen if total >= self._uncopied_seen else total
        self._uncopied_seen = total
        self.uncopied += more
        new = Counter({"skipped": more} if more else {})
        self.counts += new
        return new

    def _add_difference(self, text: str) -> None:
        """Add a difference in the place of an equal one."""
        if text in self.differences:
            self.differences.remove(text)
        self.differences.append(text)

    def describe(self) -> dict[str, Any]:
        counts = {result: self.counts[result] for result in RESULTS}
        return {**counts, "uncopied": self.uncopied, "differences": list(self.differences)}


def _printable(text: str) -> str:
    """Return one line without control characters: ids are clients' words, shown on terminals."""
    return "".join(c if c.isprintable() else " " for c in text)


class CanaryTotals:
    """The sums of all canaries since the server began, for metrics."""

    def __init__(self) -> None:
        #: By model and how it ended.
        self._ends: Counter[tuple[str, str]] = Counter()
        #: By model, version and result.
        self._comparisons: Counter[tuple[str, str, str]] = Counter()

    def count_end(self, model: str, result: str) -> None:
        self._ends[model, result] += 1

    def count_comparisons(self, model: str, version: int, new: Mapping[str, int]) -> None:
        for result, count in new.items():
            self._comparisons[model, str(version), result] += count

    def describe(self) -> dict[str, Any]:
        return {
            "ends": [[*key, count] for key, count in sorted(self._ends.items())],
            "comparisons": [[*key, count] for key, count in sorted(self._comparisons.items())],
        }
