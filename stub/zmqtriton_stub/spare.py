"""A spare process of an environment: has imported the packages of its models, and forks instances.

What an import leaves in the process is put away before the first fork: modules, variables of the
environment, filters of warnings. A model sees nothing of it until it imports one of the packages.
Then everything that the import of this package has left is there, as if it was imported now.

A package that starts a thread, opens an event loop or begins CUDA makes a process unfit for forks.
The spare process reports this package, and ends: the supervisor starts another one without it. It
also ends at the first fork after a file of its packages has changed. Imports no code of a model.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

from zmqtriton_floor import prctl, wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub import ending
from zmqtriton_stub.fork_server import ForkServer, set_oom_score, why_unfit
from zmqtriton_stub.imports import file_of, package_paths, states_of
from zmqtriton_stub.own_process import freeze
from zmqtriton_stub.template import CUDA, EVENT_LOOP, THREADS, find_obstacle, open_descriptors

#: The verb of the call that names the modules to import.
IMPORT = "import"
#: When memory runs out, the kernel ends a spare process before any instance.
_OOM_SCORE = 900
#: Why a package is left out, by the obstacle to forks that its import makes.
_REASONS = {
    CUDA: "its import begins CUDA",
    THREADS: "its import starts threads: {threads}",
    EVENT_LOOP: "its import opens an event loop",
}
#: Is set during the imports: ONNX Runtime would start a thread that reports to its makers.
_QUIET = "ORT_DISABLE_TELEMETRY"


class Group:
    """The modules and other changes that the import of a package has left in the process."""

    def __init__(self, modules: Dict[str, Any], needs: List[Group]) -> None:
        """Set up; `needs` are the groups that the import has needed."""
        self.modules, self._needs = modules, needs
        self.specs = {name: getattr(module, "__spec__", None) for name, module in modules.items()}
        self.variables: Dict[str, Optional[str]] = {}
        self.filters: List[Any] = []
        #: True if the process has its modules.
        self.is_taken = False

    def take(self) -> None:
        """Let the process have everything of the group."""
        if self.is_taken:
            return
        self.is_taken = True
        for group in self._needs:
            group.take()
        for name, module in self.modules.items():
            sys.modules.setdefault(name, module)
        prctl.set_variables(self.variables)
        filters: Any = warnings.filters
        filters[:0] = [one for one in self.filters if one not in filters]
        with warnings.catch_warnings():
            pass  # the registries of modules learn here that the filters have changed


class Store:
    """The finder of modules that were imported ahead, and are put away."""

    def __init__(self) -> None:
        self._by_module: Dict[str, Group] = {}

    def import_ahead(self, names: Iterable[str]) -> None:
        """Import the modules of a package, and put away all that this leaves in the process."""
        before, variables = dict(sys.modules), dict(os.environ)
        filters = list(warnings.filters)
        for name in names:
            with suppress(Exception):  # the model that imports it gets the error
                importlib.import_module(name)
        new = {name: m for name, m in sys.modules.items() if name not in before}
        names = [name for name, module in new.items() if file_of(module)]
        group = self._put_away(
            new, {*map(_package_of, [*names, *self._by_module])}.difference(before)
        )
        changed = set(variables.items()) ^ set(os.environ.items())
        group.variables = {name: os.environ.get(name) for name, _ in changed}
        group.filters = [each for each in warnings.filters if each not in filters]
        prctl.set_variables({name: variables.get(name) for name in group.variables})
        warnings.filters[:] = filters  # type: ignore[index]

    def _put_away(self, new: Dict[str, Any], packages: Set[str]) -> Group:
        """Take modules of packages out of the process; modules of the library stay."""
        needs = list(dict.fromkeys(one for one in self._by_module.values() if one.is_taken))
        ours = {name: m for name, m in new.items() if _package_of(name) in packages}
        group = Group({name: m for name, m in ours.items() if name not in self._by_module}, needs)
        self._by_module.update(dict.fromkeys(group.modules, group))
        for name in ours:
            del sys.modules[name]
        for each in needs:
            each.is_taken = False
        return group

    @property
    def modules(self) -> Dict[str, Any]:
        return {name: group.modules[name] for name, group in self._by_module.items()}

    # ------------------------------------------------------ what importlib calls

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[ModuleSpec]:
        group = self._by_module.get(name)
        if group is None or group.is_taken:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.origin != getattr(group.specs[name], "origin", None):
            return None  # another module has this name on the model's path
        spec.loader = self  # type: ignore[assignment]
        return spec

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._by_module[spec.name].modules[spec.name]

    def exec_module(self, module: Any) -> None:
        name = module.__spec__.name
        group = self._by_module[name]
        module.__spec__ = group.specs[name]
        group.take()


class Spare(ForkServer):
    def __init__(self, lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.store = Store()
        #: The states of the packages' files, and of the directories that they are in.
        self._files: Dict[str, Any] = {}

    def _fork(self, call: wire.Call, descriptors: List[int]) -> Optional[List[str]]:
        if call.verb == IMPORT:
            self._import(call)
            return None
        if states_of(self._files) != self._files:
            self._end(call, "the files of its packages have changed")
        return super()._fork(call, descriptors)

    def _end(self, call: wire.Call, reason: str, package: str = "") -> None:
        """Report the reason, and end."""
        for number in {0, call.id}:
            self._lifeline.send(wire.CallResult(number, Unavailable.number, reason, package))
        os._exit(0)

    def _import(self, call: wire.Call) -> None:
        problem = why_unfit()
        if problem:
            self._end(call, problem)
        sys.argv[1:] = []  # as models find it
        is_quiet = _QUIET in os.environ
        os.environ.setdefault(_QUIET, "1")
        sys.meta_path.insert(0, self.store)
        began_s, seconds = time.process_time(), {}
        for package, names in _by_package(json.loads(call.arguments)["modules"]):
            descriptors, at_s = open_descriptors(), time.process_time()
            self.store.import_ahead(names)
            seconds[package] = time.process_time() - at_s
            obstacle, threads = find_obstacle(descriptors)
            if obstacle:
                self._end(call, _REASONS[obstacle].format(threads=", ".join(threads)), package)
        if not is_quiet:
            del os.environ[_QUIET]
        prctl.flush_output()
        self._files = states_of(package_paths(self.store.modules.values()))
        freeze()
        result = {"seconds": time.process_time() - began_s, "packages": seconds}
        self._lifeline.send(wire.CallResult(0, 0, "", json.dumps(result)))


def _package_of(name: str) -> str:
    return name.partition(".")[0]


def _by_package(names: Iterable[str]) -> Iterable[Tuple[str, List[str]]]:
    packages: Dict[str, List[str]] = {}
    for name in names:
        packages.setdefault(_package_of(name), []).append(name)
    return packages.items()


def run(descriptor: int) -> Optional[Tuple[List[str], FrozenSet[str]]]:
    """Return the arguments in a new stub, and the modules it shares; None in the spare process."""
    spare = Spare(Lifeline.inherited(descriptor))
    set_oom_score(_OOM_SCORE)
    spare.prepare("zmqtriton-spare")
    arguments = spare.run()
    if arguments is None:
        return None
    ending.kept = spare.store.modules
    return arguments, frozenset(sys.modules)
