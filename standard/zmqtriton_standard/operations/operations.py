"""The operator's commands: stacks and restarts of models, and directories of models.

For `zmqtriton-ctl stacks` and `restart` in any model control mode, for `repository` only where
clients control what is loaded; elsewhere the command line decides what is served. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from zmqtriton.supervisor import (
    HOW_TO_BE_EXPLICIT,
    ChangeRepositories,
    ControlCall,
    CoreParts,
    Feature,
    Generation,
    InstanceState,
    KillRequested,
    RepeatedCall,
    RepositoriesInUse,
    Signal,
    StubPlace,
    Verb,
    Verbs,
    always,
    optional_model_name,
    required_model_name,
    the_same,
)
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.prctl import SIGNAL_THREAD
from zmqtriton_floor.reasons import Kind, Reason

#: A signal that is ignored by processes that have not installed a handler yet.
DUMP_STACKS_SIGNAL = signal.SIGURG
_REASON = Reason.of(Kind.RESTARTED, "it was restarted by an operator")
#: States of an instance with a process to end, and of one that will start by itself.
_LIVING_STATES = frozenset({InstanceState.LOADING, InstanceState.READY})
_RECOVERING_STATES = frozenset({InstanceState.STARTING, InstanceState.BACKOFF})


def dump_stacks(serial: int) -> Signal:
    """Return the signal that makes a stub write its stacks and interrupts no call of a model."""
    return Signal(serial, int(DUMP_STACKS_SIGNAL), thread=SIGNAL_THREAD)


class RepositoryRegistry(Feature):
    """Directories of models, added and removed while the server runs.

    Models that were loaded from a directory stay when it is removed.
    """

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._models = core.server.models
        self._is_explicit = core.policy.control_mode == "explicit"
        #: Absolute paths of the directories in use.
        self._paths = self._initial = core.policy.repositories
        #: Key that a client has given a directory, its folder and its model, by directory.
        self._keys: dict[str, tuple[str, str, str]] = {}

    @property
    def verbs(self) -> Verbs:
        return {
            "repository.register": Verb(
                partial(self._change, is_registration=True), changes=always, goes_over=the_same
            ),
            "repository.unregister": Verb(
                partial(self._change, is_registration=False), changes=always, goes_over=the_same
            ),
            # lists the repositories that were registered with a key
            "repository.keys": Verb(lambda call: self._known_keys()),
        }

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the directories that were added, and those that were taken away."""
        for path in self._paths:
            if path not in self._initial:
                key, folder, model = self._keys.get(path, ("", "", ""))
                names = {"names": {folder: model}, "key": key} if model else {}
                yield "repository.register", {"path": path, **names}
        for path in self._initial:
            if path not in self._paths:
                yield "repository.unregister", {"path": path}

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {"repositories": self._paths}

    async def _change(self, call: ControlCall, *, is_registration: bool) -> list[str]:
        """Add or remove a directory; the answer is all directories in use, or the error."""
        arguments = call.arguments
        if not self._is_explicit:
            noun = "registration" if is_registration else "unregistration"
            raise Unsupported(
                f"repository {noun} is not allowed if model control mode is not EXPLICIT"
                + HOW_TO_BE_EXPLICIT
            )
        path = arguments.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise InvalidArgument("a repository is named by its absolute path")
        names = _names(arguments) if is_registration else {}
        in_use: RepositoriesInUse = await self._plan.ask(
            lambda ticket: ChangeRepositories(ticket, path, is_registration, names)
        )
        self._paths, error = in_use
        if error is not None:
            raise error
        verb = "registered" if is_registration else "unregistered"
        self._plan.log("I", f"Model repository {verb}: {path}")
        self._forget(self._keys.pop(path, None))
        key = arguments.get("key")
        if is_registration and isinstance(key, str) and names:
            folder, model = next(iter(names.items()))
            self._keys[path] = key, folder, model
        return list(self._paths)

    def _forget(self, row: tuple[str, str, str] | None) -> None:
        """Let the model of an unregistered key be forgotten once it is unloaded."""
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


class Operations(Feature):
    @property
    def verbs(self) -> Verbs:
        return {
            "stacks": Verb(self._dump_stacks),
            "restart": Verb(
                self._restart, needs_repository=True, of_operators=True, changes=always
            ),
        }

    def _dump_stacks(self, call: ControlCall) -> list[dict[str, Any]]:
        """Have the model's stubs write the Python stacks of their threads.

        Each writes them to its output, and so to the log, whatever it is doing.
        """
        rows: list[dict[str, Any]] = []
        for _, instance in self._instances(optional_model_name(call.arguments)):
            if instance.pid:
                if not any(row["pid"] == instance.pid for row in rows):  # they may be threads
                    self._plan.enqueue(dump_stacks(instance.serial))
                state = instance.state.value
                rows.append({"instance": instance.name, "pid": instance.pid, "state": state})
        return rows

    async def _restart(self, call: ControlCall) -> int:
        """End the stubs, which then come back; load the model if no stub serves or will.

        A load that is under way may hang, and everything else that is asked of the model waits for
        it: it is ended and begun again, and what serves meanwhile is left alone. The answer is the
        number of ended stubs, or the load's error; with `wait` false a load is not waited for.
        """
        name = required_model_name(call.arguments)
        model = self._server.models.get(name)
        instances = list(self._instances(name))
        if only := call.arguments.get("instance", ""):
            return self._restart_one(name, only, instances)
        alive = [(g, i) for g, i in instances if i.state in _LIVING_STATES]
        is_loading = model is not None and model.cancel_load(_REASON)
        if alive and not is_loading:
            return _end(alive)
        if not is_loading and any(i.state in _RECOVERING_STATES for _, i in instances):
            return 0
        loaded = self._server.load(name, None)
        if call.arguments.get("wait", True) or loaded.is_kept:
            error = await loaded
            if error is not None:
                raise error
        return 0

    def _restart_one(
        self, model: str, name: str, instances: Sequence[tuple[Generation, StubPlace]]
    ) -> int:
        """End the process of one instance, which is then replaced; return the number ended."""
        named = [(g, i) for g, i in instances if i.name == name]
        if not named:
            names = ", ".join(sorted({i.name for _, i in instances})) or "none"
            raise InvalidArgument(f"model '{model}' has no instance '{name}'; it has {names}")
        return _end([(g, i) for g, i in named if i.state in _LIVING_STATES])

    def _instances(self, model: str) -> Iterator[tuple[Generation, StubPlace]]:
        for generation in list(self._server.generations.values()):
            if generation.blueprint.name == model:
                yield from ((generation, instance) for instance in list(generation.instances))


def _end(instances: Sequence[tuple[Generation, StubPlace]]) -> int:
    """End instances, which then come back; return how many."""
    for generation, instance in instances:
        generation.handle(instance, KillRequested(_REASON))
    return len(instances)
