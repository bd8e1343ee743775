"""Ensembles: generations without processes, and their members.

An ensemble is loaded after its members, executes in the broker, and is as ready as the least ready
of them. Does no I/O.
"""

from __future__ import annotations

from zmqtriton.config.ensembles import check_cycle, no_loaded_version_text, version_not_loaded_text
from zmqtriton.reading.blueprint import Blueprint, EnsembleBlueprint, FinalConfig
from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import StubPlace, shorten
from zmqtriton.supervisor.models.order import Members
from zmqtriton.supervisor.models.version import serving
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.story import All, Promise
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.reasons import Kind, Reason

#: Ensembles may contain ensembles; each level costs the broker a part of its stack.
MAX_DEPTH = 32
_UNKNOWN_MODEL = Reason.of(Kind.OTHER, "unknown model")


class EnsembleMembers:
    """All models, as the loads of ensembles use them."""

    def __init__(self, server: Members) -> None:
        self._server, self._models = server, server.models
        #: Models that are ensembles, or were before a reload.
        self._ensembles: set[str] = set()

    # ---------------------------------------------------------------- loading

    def load_members(self, ensemble: EnsembleBlueprint, *, again: bool) -> Promise[None]:
        """Load each member, or try to; `again` retries those that failed."""
        return All(
            self._server.get_or_create_model(member).load_as_dependency(again=again)
            for member in ensemble.member_names
        )

    def check_acyclic(self, name: str) -> None:
        """Raise ConfigError if an ensemble calls itself through others."""
        check_cycle(
            name,
            {other: model.dependencies.members for other, model in self._models.items()},
        )

    def finalize_config(self, blueprint: Blueprint) -> FinalConfig:
        """Return the ensemble's configuration, which its members complete.

        Raises InvalidArgument and ConfigError if it cannot be served.
        """
        ensemble = blueprint.ensemble
        assert ensemble is not None
        name = blueprint.name
        self._ensembles.add(name)
        members: dict[str, FinalConfig] = {}
        for index, (model, number) in enumerate(ensemble.steps):
            if self.serving(model) is None:
                why = self.why_not_loaded(model)
                text = no_loaded_version_text(name, model, shorten(why.text))
                raise ensemble.step_error(index, text).because(
                    Kind.MEMBER_NOT_LOADED, why, member=model
                )
            served = self.serving(model, number)
            if served is None:
                text = version_not_loaded_text(name, model, number)
                raise ensemble.step_error(index, text).because(Kind.MEMBER_NOT_LOADED, member=model)
            assert served.final_config is not None
            members[model] = served.final_config
        if 1 + max(map(self._depth, ensemble.member_names)) > MAX_DEPTH:
            raise InvalidArgument(
                f"ensemble '{name}' can have ensembles in it at most {MAX_DEPTH} deep"
            )
        return ensemble.finalize_config(members)

    def _depth(self, name: str) -> int:
        """Return the depth of ensembles within a serving model; 0 for other models."""
        model = self._models.get(name)
        members = model.dependencies.served_members if model else ()
        return 1 + max(map(self._depth, members)) if members else 0

    def serving(self, model: str, number: int = -1) -> Generation | None:
        """Return the generation that serves a step, or None; -1 is the highest version."""
        member = self._models.get(model)
        return serving(member.versions, number) if member else None

    def why_not_loaded(self, model: str) -> Reason:
        member = self._models.get(model)
        return member.why_not_loaded if member else _UNKNOWN_MODEL

    def notify_ensembles(self, name: str) -> None:
        """Notify the ensembles that call a changed model."""
        for each in self._ensembles & self._models.keys():
            self._models[each].member_changed(name)

    # -------------------------------------------------------------- unloading

    def unload_order(self, name: str) -> list[str]:
        """Return the models that are unloaded with this one, callers first.

        These are its callers, and the models that were loaded only for its sake.
        """
        leaving = [name]
        for each in leaving:
            leaving += [
                n
                for n, m in self._models.items()
                if each in m.dependencies.callees and n not in leaving
            ]
        for each in leaving:
            model = self._models.get(each)
            for callee in sorted(model.dependencies.callees) if model else ():
                if callee not in leaving and self._is_free(callee, leaving):
                    leaving.append(callee)
        return self._callers_first(leaving)

    def _callers_first(self, names: list[str]) -> list[str]:
        left, ordered = list(names), []
        while left:
            called = {
                c
                for n in left
                if n in self._models
                for c in self._models[n].dependencies.callees - {n}
            }
            # If all of them call each other, any may be the first.
            first = next((name for name in left if name not in called), left[0])
            left.remove(first)
            ordered.append(first)
        return ordered

    def _is_free(self, name: str, leaving: list[str]) -> bool:
        model = self._models.get(name)
        callers = [n for n, m in self._models.items() if name in m.dependencies.callees]
        return (
            model is not None and not model.was_explicitly_loaded and set(callers) <= set(leaving)
        )


class EnsembleReadiness:
    """An ensemble's readiness: it can execute when all of its steps can."""

    #: Members are given up, ensembles are not.
    have_all_failed = False

    def __init__(self, ensemble: EnsembleBlueprint, members: EnsembleMembers) -> None:
        self._ensemble = ensemble
        self._members = members

    @property
    def ready_count(self) -> int:
        """Return the number of ready instances of the step that has the fewest."""
        return min(map(self._ready, self._ensemble.steps))

    def _ready(self, step: tuple[str, int]) -> int:
        generation = self._members.serving(*step)
        return generation.readiness.ready_count if generation else 0

    @property
    def why_not_ready(self) -> Reason | None:
        """Return why the first unavailable step cannot be executed now."""
        for model, number in self._ensemble.steps:
            if not self._ready((model, number)):
                why = self._members.why_not_loaded(model)
                text = f"model '{model}' of the ensemble is not ready: {shorten(why.text)}"
                return Reason.of(Kind.MEMBER_NOT_READY, text, why, member=model)
        return None

    def with_is_ready(self) -> list[StubPlace]:
        """Return all instances of the steps whose models must be asked."""
        generations = [self._members.serving(*step) for step in self._ensemble.steps]
        instances = [one for each in generations if each for one in each.readiness.with_is_ready()]
        return list({one.serial: one for one in instances}.values())


class EnsembleGeneration(Generation):
    """Serves at once, and ends when the broker has answered the last request."""

    def __init__(
        self,
        plan: Plan,
        introductions: Introductions,
        blueprint: Blueprint,
        version: int,
        members: EnsembleMembers,
    ) -> None:
        super().__init__(plan, introductions, blueprint, version)
        assert blueprint.ensemble is not None
        self.readiness = EnsembleReadiness(blueprint.ensemble, members)

    async def start(self) -> None:
        self._plan.log("V", f"ensemble model for {self.blueprint.name}\n")
        self._transition(states.AllInstancesLoaded())
        self.loaded()

    def _keep_answering(self) -> None:
        """Leave the draining to the broker."""
