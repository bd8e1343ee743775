"""Directories of models that zmqtriton-ctl adds and removes while the server runs.

Only where clients control what is loaded; elsewhere the command line decides what is served. Models
that were loaded from a directory stay when it is removed. Does no I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zmqtriton.supervisor.actions import ChangeRepositories
from zmqtriton.supervisor.control.arguments import required_model_name
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import InvalidArgument, Unsupported, ZmqTritonError

REGISTER, UNREGISTER = "repository.register", "repository.unregister"
#: Lists the repositories that were registered with a key.
KEYS = "repository.keys"
#: Behind the texts of Triton, which clients may look for.
HOW_TO_BE_EXPLICIT = ". Start the server with --model-control-mode=explicit"
VERBS = frozenset({REGISTER, UNREGISTER, KEYS})


class _PendingChange(NamedTuple):
    log_text: str
    respond: Callable[[Any], None]
    path: str
    #: What a client calls it, the folder of its model, and the name of that; None if nothing.
    row: tuple[str, str, str] | None


class RepositoryRegistry:
    def __init__(
        self,
        plan: Plan,
        paths: tuple[str, ...],
        models: Mapping[str, Model],
        *,
        is_explicit: bool,
    ) -> None:
        self._plan = plan
        self._models = models
        self._is_explicit = is_explicit
        self._tickets = itertools.count(1)
        self._pending: dict[int, _PendingChange] = {}
        #: Absolute paths of the directories in use.
        self.paths = paths
        #: What clients call a directory, with its model, by the directory's path.
        self._keys: dict[str, tuple[str, str, str]] = {}

    def handle(self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """Add or remove a directory; `answer` gets all directories in use, or the error."""
        if verb == KEYS:
            answer(self._known_keys())
            return
        is_wanted = verb == REGISTER
        if not self._is_explicit:
            noun = "registration" if is_wanted else "unregistration"
            raise Unsupported(
                f"repository {noun} is not allowed if model control mode is not EXPLICIT"
                + HOW_TO_BE_EXPLICIT
            )
        path = arguments.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise InvalidArgument("a repository is named by its absolute path")
        names = _names(arguments) if is_wanted else {}
        ticket = next(self._tickets)
        text = f"Model repository {'registered' if is_wanted else 'unregistered'}: {path}"
        key = arguments.get("key")
        is_keyed = is_wanted and isinstance(key, str) and bool(names)
        row = (str(key), *next(iter(names.items()))) if is_keyed else None
        self._pending[ticket] = _PendingChange(text, answer, path, row)
        self._plan.enqueue(ChangeRepositories(ticket, path, is_wanted, names))

    def repositories_changed(
        self, ticket: int, paths: tuple[str, ...], error: ZmqTritonError | None
    ) -> None:
        """Take the answer to ChangeRepositories."""
        change = self._pending.pop(ticket)
        self.paths = paths
        if error is None:
            self._plan.log("I", change.log_text)
            self._forget(self._keys.pop(change.path, None))
            if change.row is not None:
                self._keys[change.path] = change.row
        change.respond(error or list(paths))

    def _forget(self, row: tuple[str, str, str] | None) -> None:
        """Forget a model that nobody else names, once it is unloaded."""
        if row is not None and row[2] in self._models:
            self._models[row[2]].history.is_directory_gone = True

    def _known_keys(self) -> dict[str, dict[str, str]]:
        return {
            key: {"path": path, "folder": folder, "model": model}
            for path, (key, folder, model) in self._keys.items()
        }


def _names(arguments: dict[str, Any]) -> dict[str, str]:
    """Parse the names of models that are not those of their folders."""
    names = arguments.get("names", {})
    if type(names) is not dict or not all(type(name) is str for name in names.values()):
        raise InvalidArgument("the names of models must be an object of texts")
    for name in names.values():
        required_model_name({"model": name})
    return names
