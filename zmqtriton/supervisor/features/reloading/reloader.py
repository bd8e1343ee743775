"""Has models loaded again when their files change. Does no I/O.

Watched are those that were loaded from their own files, whether or not that succeeded: neither what
a request has brought along or unloaded, nor what nobody has asked for.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from zmqtriton.supervisor.actions import LookAtFiles
from zmqtriton.supervisor.features.reloading.file_watch import FileReport, FileWatch
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import UNLOADED
from zmqtriton_floor.errors import ZmqTritonError

#: Between two looks, and before the one that decides about a change.
LOOK_S, SETTLE_S = 0.25, 0.1
#: Looks take no larger share of the time than one in so many.
_SHARE = 20


class ReloadedServer(Protocol):
    models: dict[str, Model]

    @property
    def is_stopping(self) -> bool:
        """True once nothing new may begin."""


class Reloader:
    def __init__(self, plan: Plan, server: ReloadedServer) -> None:
        self._plan = plan
        self._server = server
        self._watch = FileWatch()

    def begin(self) -> None:
        """Look at the files, and again and again from then on."""
        models = self._server.models
        names = tuple(name for name, model in models.items() if _follows_files(model))
        if not self._server.is_stopping:
            self._plan.enqueue(LookAtFiles(names))

    def on_looked(self, report: FileReport) -> None:
        """Take the answer to LookAtFiles."""
        for name in self._watch.observe(report.fingerprints):
            model = self._server.models.get(name)
            if model is not None and not self._server.is_stopping:
                model.poll(0.0, partial(self._tell, model))
        pause_s = SETTLE_S if self._watch.is_changing else LOOK_S
        self._plan.call_later(max(pause_s, report.took_s * _SHARE), self.begin)

    def _tell(self, model: Model, error: ZmqTritonError | None) -> None:
        """Say last why a change is not served."""
        if error is not None:
            self._plan.log("E", f"{model.name}: {_why_not_loaded(model) or error.text}")


def _follows_files(model: Model) -> bool:
    """True if it is loaded from files of its own, or was to be."""
    return model.history.is_from_files and not model.was_unloaded


def _why_not_loaded(model: Model) -> str:
    """Return why the last load has failed; "" if nobody knows."""
    reasons = [v.reason for v in model.versions.values() if v.reason not in ("", UNLOADED)]
    return model.history.read_problem or "; ".join(reasons)
