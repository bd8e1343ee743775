"""Has models loaded again when their files change. Does no I/O.

Watched are those that were loaded from their own files, whether or not that succeeded: neither what
a request has brought along or unloaded, nor what nobody has asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from zmqtriton.supervisor.actions import FileReport, LookAtFiles
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.states import UNLOADED
from zmqtriton_floor.errors import ZmqTritonError

#: Between two looks, and before the one that decides about a change.
LOOK_S, SETTLE_S = 0.25, 0.1
#: Looks take no larger share of the time than one in so many.
_SHARE = 20


class Reloader(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._is_on = core.policy.reload
        self._server = core.server
        self._watch = FileWatch()

    def start(self) -> None:
        if self._is_on:
            self._look()

    def _look(self) -> None:
        """Look at the files, and again and again from then on."""
        models = self._server.models
        names = tuple(name for name, model in models.items() if _follows_files(model))
        if not self._server.is_stopping:
            self._plan.enqueue(LookAtFiles(self._plan.expect(self._on_looked), names))

    def _on_looked(self, report: FileReport) -> None:
        for name in self._watch.observe(report.fingerprints):
            model = self._server.models.get(name)
            if model is not None and not self._server.is_stopping:
                model.poll(0.0, partial(self._tell, model))
        pause_s = SETTLE_S if self._watch.is_changing else LOOK_S
        self._plan.call_later(max(pause_s, report.took_s * _SHARE), self._look)

    def _tell(self, model: Model, error: ZmqTritonError | None) -> None:
        """Say last why a change is not served."""
        if error is not None:
            self._plan.log("E", f"{model.name}: {_why_not_loaded(model) or error.text}")


def _follows_files(model: Model) -> bool:
    """True if it is loaded from files of its own, or was to be."""
    return model.history.is_from_files and not model.was_unloaded


def _why_not_loaded(model: Model) -> str:
    """Return why the last load has failed; "" if nobody knows."""
    if model.history.read_problem:
        return model.history.read_problem.text
    reasons = [v.reason for v in model.versions.values() if v.reason not in (None, UNLOADED)]
    return "; ".join(reason.text for reason in reasons if reason)


class FileWatch:
    """Finds the models whose files have changed and are completely written.

    Who saves a file may truncate it first, or write another and rename it: a change counts once
    two looks have seen the same.
    """

    def __init__(self) -> None:
        #: The fingerprints that were reported, or are about to be.
        self._settled: dict[str, str] = {}
        self._changing: dict[str, str] = {}

    @property
    def is_changing(self) -> bool:
        """True if the next look decides about a change."""
        return bool(self._changing)

    def observe(self, fingerprints: Mapping[str, str]) -> list[str]:
        """Return the models that have changed since they were last returned, or are new."""
        changing = {
            name: seen for name, seen in fingerprints.items() if seen != self._settled.get(name)
        }
        settled = [name for name, seen in changing.items() if seen == self._changing.get(name)]
        self._settled = {n: seen for n, seen in self._settled.items() if n in fingerprints}
        for name in settled:
            self._settled[name] = changing.pop(name)
        self._changing = changing
        return settled
