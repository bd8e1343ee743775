"""Control calls that load, unload and list models: their arguments, answers and Triton's texts.

A load may come with a directory, written by the calling process. The supervisor owns the directory
from the call on, until the load has ended and the last generation that runs from it is gone. Does
no I/O.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Any

from zmqtriton.environments.demand import GuestHost
from zmqtriton.reading.blueprint import LoadOverride
from zmqtriton.roles import GUEST, LOCAL_SERVICES
from zmqtriton.supervisor.actions import RemoveDirectory
from zmqtriton.supervisor.control.verbs import (
    HOW_TO_BE_EXPLICIT,
    OWN_CALLER,
    ControlCall,
    RepeatedCall,
    Verb,
    Verbs,
)
from zmqtriton.supervisor.features.feature import HostServer
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.model_report import repository_index
from zmqtriton.supervisor.models.order import NestedLoads
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton_floor import staging
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_floor.reasons import Reason

#: Triton's text; it is the same in each mode.
NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"
#: The place of a load's files at the server before.
_COPIED = "copied"


class StagedFiles:
    def __init__(self, plan: Plan, runtime: str, generations: Mapping[int, Generation]) -> None:
        self._plan = plan
        self._folder = staging.folder(runtime)
        #: Directories by path; True while the load of one is under way.
        self._is_loading: dict[str, bool] = {}
        plan.server.whenever(partial(self._unused, generations), self._remove)

    def claim(self, caller: int, parameters: Any) -> str:
        """Take over the directory that a load names; "" if it names none.

        Raises InvalidArgument.
        """
        path = self.place(caller, parameters)
        if path in self._is_loading:
            raise InvalidArgument("the files of a load can be loaded only once: send them again")
        if path:
            self._is_loading[path] = True
        return path

    def place(self, caller: int, parameters: Any) -> str:
        """Return the directory that a load names, or "". Raises InvalidArgument."""
        name = parameters.get("staged", "") if isinstance(parameters, dict) else None
        if name == "":
            return ""
        # A model can make its stub say anything, so it may not name another process's directory.
        if not isinstance(name, str) or not re.fullmatch(rf"{caller}-[0-9a-f]{{16}}", name):
            raise InvalidArgument("the process that requests a load must have staged its files")
        return posixpath.join(self._folder, name)

    def claim_copy(self) -> str:
        """Return a place for a copy of files that came with a load at another server."""
        path = posixpath.join(self._folder, f"{OWN_CALLER}-{self._plan.new_ticket():016x}")
        self._is_loading[path] = True
        return path

    def load_ended(self, path: str) -> None:
        """Record the end of a load with files, whether it succeeded or not."""
        if path:
            self._is_loading[path] = False

    @property
    def claimed(self) -> Container[str]:
        """The directories of loads that have begun, or are in use."""
        return self._is_loading.keys()

    def _unused(self, generations: Mapping[int, Generation]) -> list[str]:
        """Return the directories that neither a load nor a generation needs."""
        idle = [path for path, is_loading in self._is_loading.items() if not is_loading]
        used = {each.blueprint.directory for each in generations.values()} if idle else ()
        return [path for path in idle if path not in used]

    def _remove(self, unused: Iterable[str]) -> None:
        for path in unused:
            del self._is_loading[path]
            self._plan.enqueue(RemoveDirectory(path))


class LoadCalls:
    def __init__(
        self,
        server: HostServer,
        peers: Peers,
        staged_files: StagedFiles,
        nested_loads: NestedLoads,
        why_never_loaded: Reason | None,
        *,
        is_explicit: bool,
    ) -> None:
        """Set up; `why_never_loaded` is the reason given for a model that was never tried."""
        self._server = server
        self._peers = peers
        self._staged_files = staged_files
        self._nested_loads = nested_loads
        self._why_never_loaded = why_never_loaded
        self._is_explicit = is_explicit

    @property
    def verbs(self) -> Verbs:
        return {
            "index": Verb(self._index, needs_repository=True),
            "load": Verb(
                self._load,
                needs_repository=True,
                of_models=True,
                changes=Verb.always,
                goes_over=self._to_repeat,
            ),
            "unload": Verb(
                self._unload,
                needs_repository=True,
                of_models=True,
                changes=Verb.always,
                goes_over=Verb.the_same,
            ),
        }

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the loads and unloads of clients."""
        if not self._is_explicit:
            return
        for name, model in self._server.models.items():
            override = model.history.override
            is_serving = any(version.is_serving for version in model.versions.values())
            if not is_serving and model.was_explicitly_unloaded:
                yield "unload", {"model": name}
            elif is_serving and model.was_explicitly_loaded:
                parameters = {"config": override.config} if override is not None else {}
                arguments: dict[str, Any] = {"model": name, "parameters": parameters}
                if override is not None and override.host is not None:
                    continue  # it ends with the guest, which is told that this server leaves
                if override is not None and override.directory:
                    arguments["files"] = {_COPIED: override.directory}
                yield "load", arguments

    def _to_repeat(self, call: ControlCall) -> dict[str, Any] | None:
        """Return the arguments of the same load at another server on this machine."""
        if call.arguments.get("binding") is not None:
            return None
        directory = self._staged_files.place(call.caller, call.arguments.get("files", {}))
        return {**call.arguments, **({"files": {_COPIED: directory}} if directory else {})}

    async def _index(self, call: ControlCall) -> list[dict[str, Any]]:
        is_urgent = bool(call.arguments.get("urgent"))
        try:
            names = await self._server.list_repository(is_urgent=is_urgent)
        except ZmqTritonError:  # what is known by then is shown
            names = {}
        entries = repository_index(names, self._server.models, self._why_never_loaded)
        if call.arguments.get("ready"):
            entries = [entry for entry in entries if entry.get("state") == "READY"]
        if not call.arguments.get("reasons"):  # only programs of ours read more than the text
            for entry in entries:
                entry.pop("why", None)
        return entries

    async def _load(self, call: ControlCall) -> str | None:
        """Load a model; the result only says if there was nothing to load."""
        caller, arguments = call.caller, call.arguments
        files, source = arguments.get("files", {}), ""
        if caller == OWN_CALLER and isinstance(files, dict) and _COPIED in files:
            source, directory = files[_COPIED], self._staged_files.claim_copy()
        else:
            directory = self._staged_files.claim(caller, files)
        try:
            host = self._host(caller, arguments.get("binding"))
            self._check_allowed(is_bound=host is not None or self._is_of_service(call))
            model = ControlCall.required_model_name(arguments)
            override = _override(arguments, directory, host, source)
            with self._nested_loads.waiting(caller, model):
                await self._server.load(model, override)
        finally:
            self._staged_files.load_ended(directory)
        served = self._server.models.get(model)
        return "unchanged" if served is not None and served.history.is_unchanged else None

    def _host(self, caller: int, binding: Any) -> GuestHost | None:
        """Parse the guest that should run the model; None for the server itself."""
        if binding is None:
            return None
        peer = self._peers.find_peer(caller)
        if type(binding) is not int or binding < 0 or peer is None or peer.role != GUEST:
            raise InvalidArgument("only a process that takes part in the server can bind a model")
        return GuestHost(caller, binding)

    async def _unload(self, call: ControlCall) -> None:
        arguments = call.arguments
        model = self._server.models.get(ControlCall.optional_model_name(arguments))
        is_bound = model is not None and call.caller in model.guests
        self._check_allowed(is_bound=is_bound or self._is_of_service(call))
        dependents = arguments.get("unload_dependents", False)
        if not isinstance(dependents, bool):
            raise InvalidArgument("Unable to parse 'unload_dependents': it must be a boolean")
        await self._server.unload(ControlCall.required_model_name(arguments), dependents)

    def _is_of_service(self, call: ControlCall) -> bool:
        """Return whether a process of the server calls for itself, and not for a client."""
        peer = self._peers.find_peer(call.caller)
        is_service = peer is not None and peer.role in LOCAL_SERVICES
        return is_service and call.arguments.get("of_service") is True

    def _check_allowed(self, *, is_bound: bool) -> None:
        if self._server.is_stopping:
            raise Unavailable("Server exiting")
        if not (self._is_explicit or is_bound):
            raise Unavailable(NOT_EXPLICIT + HOW_TO_BE_EXPLICIT)


def _override(
    arguments: dict[str, Any], directory: str, host: GuestHost | None, source: str
) -> LoadOverride | None:
    """Parse the files and settings of a load; the directory is "" if it has no files."""
    parameters, files = arguments.get("parameters") or {}, arguments.get("files")
    if not isinstance(parameters, dict):
        raise InvalidArgument("the parameters of a load must be an object")
    for key in parameters:
        if key != "config":
            raise InvalidArgument(f"unrecognized load parameter '{key}'.")
    override = parameters.get("config")
    if files and override is None:
        raise InvalidArgument("Load parameter 'config' must be specified for model file override")
    if files and not directory:
        raise InvalidArgument(str(files.get("refusal")))
    if host is not None and not directory:
        raise InvalidArgument("a model that is bound has its files already: leave them out")
    if override is None:
        return None
    if not isinstance(override, str):
        raise InvalidArgument("Invalid config override: it must be a string of JSON")
    return LoadOverride(override, directory, host, source)
