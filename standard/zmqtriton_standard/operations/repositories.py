"""The directories of models, added and removed while the server runs.

For `zmqtriton-ctl repository`, only where clients control what is loaded; elsewhere the command
line decides what is served. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Verb,
    actions,
)
from zmqtriton.sdk.wire import InvalidArgument, Unsupported


class RepositoryRegistry(Feature):
    """Directories of models. Models that were loaded from a directory stay when it is removed."""

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._models = core.server.models
        self._is_explicit = core.policy.control_mode == "explicit"
        #: Absolute paths of the directories in use.
        self._paths = self._initial = core.policy.repositories
        #: Key that a client has given a directory, its folder and its model, by directory.
        self._keys: dict[str, tuple[str, str, str]] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            "repository.register": Verb(
                partial(self._change, is_registration=True),
                changes=Verb.always,
                goes_over=Verb.the_same,
            ),
            "repository.unregister": Verb(
                partial(self._change, is_registration=False),
                changes=Verb.always,
                goes_over=Verb.the_same,
            ),
            # lists the repositories that were registered with a key
            "repository.keys": Verb(lambda call: self._known_keys()),
        }

    def repeated_calls(self) -> Iterable[tuple[str, dict[str, Any]]]:
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
        """Add or remove a directory; answer with all directories in use, or an error."""
        arguments = call.arguments
        if not self._is_explicit:
            noun = "registration" if is_registration else "unregistration"
            raise Unsupported(
                f"repository {noun} is not allowed if model control mode is not EXPLICIT. Start "
                "the server with --model-control-mode=explicit"
            )
        path = arguments.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise InvalidArgument("a repository must be an absolute path")
        names = _names(arguments) if is_registration else {}
        self._paths = await self._plan.ask(
            lambda ticket: actions.ChangeRepositories(ticket, path, is_registration, names)
        )
        verb = "registered" if is_registration else "unregistered"
        self._plan.log("I", f"Model repository {verb}: {path}")
        row = self._keys.pop(path, None)
        if row is not None and row[2] in self._models:
            # the key's model is forgotten once it is unloaded
            self._models[row[2]].history.is_directory_gone = True
        key = arguments.get("key")
        if is_registration and isinstance(key, str) and names:
            folder, model = next(iter(names.items()))
            self._keys[path] = key, folder, model
        return list(self._paths)

    def _known_keys(self) -> dict[str, dict[str, str]]:
        return {
            key: {"path": path, "folder": folder, "model": model}
            for path, (key, folder, model) in self._keys.items()
        }


def _names(arguments: dict[str, Any]) -> dict[str, str]:
    """Parse the names of models whose folders have other names."""
    names = arguments.get("names", {})
    if type(names) is not dict or not all(type(name) is str for name in names.values()):
        raise InvalidArgument("the names of models must be an object of texts")
    for name in names.values():
        ControlCall.required_model_name({"model": name})
    return names
