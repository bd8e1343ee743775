"""A feature of the supervisor, as the core knows it: hooks that do nothing by default.

A feature is a class with one parameter: the parts of the core that features may use. The core makes
one object of each class in its list (`features/table.py`), and knows no feature by name. Features
do not know each other either: they communicate by hooks and the state of models. Like the core they
do no I/O, know no clock and never block.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

from zmqtriton.reading.blueprint import Blueprint, LoadOverride
from zmqtriton.supervisor.actions import Assignment, RepositoryNames
from zmqtriton.supervisor.control.verbs import RepeatedCall, Verbs
from zmqtriton.supervisor.helper_processes import HelperOwner
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import StubPlace
from zmqtriton.supervisor.models.model import ServedModel
from zmqtriton.supervisor.models.readings import ModelSource
from zmqtriton.supervisor.models.stub_tasks import StubTasks
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.audience import Audience
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.settings import Policy, ServerInfo
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.errors import NotFound
from zmqtriton_floor.reasons import Reason

_Answer = TypeVar("_Answer")
#: A hook without an answer.
_Hook = Callable[..., None]
#: Minimum seconds between two log lines about a feature whose hooks fail.
_LOG_AGAIN_AFTER_S = 60.0


class HostServer(Protocol):
    """The server, as features need it."""

    models: dict[str, ServedModel]
    #: Generations that were started and have not ended, by number.
    generations: dict[int, Generation]

    @property
    def is_stopping(self) -> bool:
        """True once no new work may begin."""

    @property
    def is_moving(self) -> bool:
        """True while models move to this server from its predecessor."""

    def get_or_create_model(self, name: str) -> ServedModel:
        """Return the model; create it if it is unknown."""

    def list_repository(
        self, *, is_patient: bool = False, is_urgent: bool = False
    ) -> Promise[RepositoryNames]:
        """Return the names of the repositories' models.

        With patience, of all repositories; an urgent answer comes at once.
        """

    def load(
        self, model: str, override: LoadOverride | None, *, renews: bool = False
    ) -> Promise[None]:
        """Load a model; `renews` replaces its processes even if nothing has changed."""

    def unload(self, model: str, dependents: bool) -> Promise[None]:
        """Unload a model; resolved when no client can use it any more."""

    def perform(self, verb: str, arguments: dict[str, Any]) -> Promise[Any]:
        """Perform a control call, of the core or a feature; return its result, or the error."""

    def stop(self, status: int = 0) -> None:
        """End the server in order."""


class CoreParts(NamedTuple):
    """The parts of the core that features may use."""

    plan: Plan
    policy: Policy
    info: ServerInfo
    server: HostServer
    introductions: Introductions
    audience: Audience
    counts: BrokerCounts
    tasks: StubTasks


class Feature:
    """The hooks, in the order of the server's life."""

    def __init__(self, core: CoreParts) -> None:
        """Keep parts of the core, which is not complete yet."""
        self._plan = core.plan
        self._server = core.server
        self._counts = core.counts
        self._audience = core.audience
        self._introductions = core.introductions

    def _find_model(self, name: str) -> ServedModel:
        """Return a model that the server knows. Raises NotFound."""
        if name not in self._server.models:
            raise NotFound(f"there is no model '{name}'; `zmqtriton-ctl models` lists them")
        return self._server.models[name]

    # ------------------------------------------- what it adds, asked for once

    @property
    def verbs(self) -> Verbs:
        """Return the control calls that it answers."""
        return {}

    @property
    def helpers(self) -> Iterable[HelperOwner]:
        """Return the owners of the feature's helper processes, which do one task each."""
        return ()

    @property
    def source(self) -> ModelSource | None:
        """Return the source of models that are not on this machine; at most one feature has one."""
        return None

    @property
    def why_never_loaded(self) -> Reason | None:
        """Return the reason of a model that was never loaded, for the repository index."""
        return None

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the calls that create this feature's state at a server that takes over."""
        return ()

    # ------------------------------------------------------- the server's life

    def start(self) -> None:
        """Begin, after the first processes were started and the first loads requested."""

    def start_problem(self, ready: Sequence[str]) -> str:
        """Return why a server with these models cannot begin to serve; "" if it can."""
        return ""

    def defer_stop(self) -> bool:
        """Return True to put off a requested stop; the feature calls `HostServer.stop` later."""
        return False

    def stop(self) -> None:
        """Begin nothing more: the server stops."""

    # ------------------------------------------------------------------ models

    def load_began(self, blueprint: Blueprint) -> None:
        """Handle a model that was read and is about to be built."""

    def place(
        self, generation: Generation, instance: StubPlace
    ) -> tuple[tuple[int, ...], Mapping[str, str]]:
        """Return the cores and the variables of an instance that starts; () means any core."""
        return (), {}

    def load_succeeded(self, blueprint: Blueprint) -> None:
        """Handle a model that serves as its blueprint says."""

    def load_ended(self, name: str) -> None:
        """Handle the end of a load, whether it succeeded or not."""

    def forget_model(self, name: str) -> None:
        """Forget a model whose directory is gone."""

    # ---------------------------------------------------------- what is shown

    def news(self) -> Iterable[Any]:
        """Return the messages that a new frontend needs before the messages about models."""
        return ()

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return its part of the status, by key; `counts` are the broker's, by version."""
        return {}

    def describe_process(self, process: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return its part of this row of the status, by key; called after `describe`."""
        return {}

    @property
    def phase(self) -> str:
        """Return the state of the server in one word, for its status line; "" for the usual one."""
        return ""


class Features:
    """All features of a server: if a hook fails, this is logged, and other features continue."""

    def __init__(self, plan: Plan, features: Sequence[Feature]) -> None:
        self._plan = plan
        self._features = features
        #: The features with a hook of their own, by its name, once it was called.
        self._owners: dict[str, list[Feature]] = {}
        #: Time of the last logged failure, and the number of failures since, by feature.
        self._logged: dict[Feature, tuple[float, int]] = {}

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._features)

    def ask(self, hook: Callable[[Feature], _Answer]) -> Iterator[_Answer]:
        """Yield the answers of hooks that do not fail; each is called when its answer is needed."""
        for feature in self._features:
            try:
                answer = hook(feature)
            except Exception as error:  # noqa: BLE001 - a defect of one feature is not that of all
                self._log(feature, error)
            else:
                yield answer

    def tell(self, hook: _Hook, *arguments: Any) -> None:
        """Call a hook of all features that have one of their own."""
        name = hook.__name__
        if name not in self._owners:
            self._owners[name] = [f for f in self._features if getattr(type(f), name) is not hook]
        for feature in self._owners[name]:
            try:
                getattr(feature, name)(*arguments)
            except Exception as error:  # noqa: BLE001 - as above
                self._log(feature, error)

    def load_began(self, blueprint: Blueprint) -> None:
        self.tell(Feature.load_began, blueprint)

    def place(self, generation: Generation, instance: StubPlace) -> Assignment:
        """Return the cores, of the first feature that has some, and the variables of all."""
        cores, variables = Assignment().cores, dict[str, str]()
        for own_cores, own_variables in self.ask(lambda each: each.place(generation, instance)):
            cores = cores or own_cores
            variables |= own_variables
        return Assignment(cores, variables)

    def load_succeeded(self, blueprint: Blueprint) -> None:
        self.tell(Feature.load_succeeded, blueprint)

    def load_ended(self, name: str) -> None:
        self.tell(Feature.load_ended, name)

    def news(self) -> Iterable[Any]:
        return chain.from_iterable(self.ask(lambda each: [*each.news()]))

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        return chain.from_iterable(self.ask(lambda each: [*each.repeated_calls()]))

    def describe(self, counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            key: value
            for part in self.ask(lambda each: each.describe(counts))
            for key, value in part.items()
        }

    def describe_process(self, process: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for part in self.ask(lambda each: each.describe_process(process))
            for key, value in part.items()
        }

    @property
    def phases(self) -> list[str]:
        return [phase for phase in self.ask(lambda each: each.phase) if phase]

    def _log(self, feature: Feature, error: Exception) -> None:
        now_s = self._plan.now_s
        logged_s, unlogged = self._logged.get(feature, (-_LOG_AGAIN_AFTER_S, 0))
        if now_s - logged_s < _LOG_AGAIN_AFTER_S:
            self._logged[feature] = (logged_s, unlogged + 1)
            return
        self._logged[feature] = (now_s, 0)
        more = f", and {unlogged} times before" if unlogged else ""
        trace = "".join(traceback.format_exception(error))
        self._plan.log("E", f"feature {type(feature).__name__} has failed{more}: {error}", trace)
