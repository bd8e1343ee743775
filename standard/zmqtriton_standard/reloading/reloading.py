"""Loads models again whose files have changed: by itself, or at a command. Does no I/O.

The models watched are those that were loaded from their own files, whether or not that succeeded:
no models whose files came with a request, that a request has unloaded, or that were never loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Promise,
    ServedModel,
    Verb,
    actions,
)
from zmqtriton.sdk.wire import Kind, Reason, ZmqTritonError
from zmqtriton_standard.reloading import ReloadingOptions

#: Seconds between two looks at the files, and before the look that confirms a change.
LOOK_S, SETTLE_S = 0.25, 0.1
#: Minimum pause after a look, as a multiple of the look's duration.
_SHARE = 20


class Reloader(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._is_on = core.policy.options_of(ReloadingOptions).reload
        self._watch = FileWatch()

    def start(self) -> None:
        if self._is_on:
            self._plan.tell(self._look())

    async def _look(self) -> None:
        """Look for changed files, again and again."""
        server = self._server
        while not server.is_stopping:
            # those that were loaded from files of their own, or were to be
            names = tuple(
                name
                for name, model in server.models.items()
                if model.history.is_from_files and not model.was_unloaded
            )
            report: actions.FileReport = await self._plan.ask(
                partial(actions.LookAtFiles, models=names)
            )
            for name in self._watch.observe(report.fingerprints):
                model = server.models.get(name)
                if model is not None and not server.is_stopping:
                    self._plan.tell(self._load(model))
            pause_s = SETTLE_S if self._watch.is_changing else LOOK_S
            await self._plan.pause(max(pause_s, report.took_s * _SHARE))

    async def _load(self, model: ServedModel) -> None:
        """Load a changed model; return why it is not served. A poll may have tried it before."""
        why = ""
        try:
            await model.poll(0.0)
        except ZmqTritonError as error:
            why = error.text
        if why := _why_not_loaded(model) or why:
            self._plan.log("E", f"{model.name}: {why}")


def _why_not_loaded(model: ServedModel) -> str:
    """Return the reason of the last load's failure; "" if it is not known."""
    if model.history.read_problem:
        return model.history.read_problem.text
    reasons = [version.reason for version in model.versions.values() if version.reason]
    return "; ".join(reason.text for reason in reasons if reason.kind != Kind.UNLOADED)


class FileWatch:
    """Finds the models whose files have changed and are completely written.

    An editor may truncate a file before it writes, or write another and rename it: so a change
    counts once two looks have seen the same state.
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


class ReloadCalls(Feature):
    """The command that loads changed files: `zmqtriton-ctl reload`, in every control mode.

    Looks at each model as a poll does, without a poll's delay. Does no I/O.
    """

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._is_explicit = core.policy.control_mode == "explicit"

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            "reload": Verb(
                self._reload,
                needs_repository=True,
                of_operators=True,
                changes=Verb.always,
                goes_over=Verb.the_same,
            )
        }

    async def _reload(self, call: ControlCall) -> dict[str, Any]:
        """Load a model, or without a name all changed ones; answer with the result of each.

        An unchanged model that failed is tried again if it is named. With `renews` a named model is
        loaded with new processes in any case.
        """
        if name := ControlCall.optional_model_name(call.arguments):
            report, model = _Report(), self._server.get_or_create_model(name)
            await report.of_load(
                model, self._server.load(name, None, renews=bool(call.arguments.get("renews")))
            )
            return report.document
        return await self._reload_listed(await self._server.list_repository())

    async def _reload_listed(self, listing: dict[str, Reason | None]) -> dict[str, Any]:
        report = _Report()
        gone = [each for each in self._server.models.values() if each.is_gone_from(listing)]
        if self._is_explicit:
            # only who has loaded them unloads them
            report.outcomes["gone"] = [model.name for model in gone if _is_in_use(model)]
            gone = []
        reloaded = []
        for model in self._choose(listing):
            problem = listing[model.name]
            if problem is not None and problem.kind == Kind.REPOSITORY_SILENT:
                report.failures[model.name] = problem.text
            else:
                reloaded.append(model)
        ends: list[Promise[None]] = []
        for model in gone:
            model.history.record_gone()
            ends.append(self._plan.tell(report.of_unload(model.name, model.unload())))
        for model in reloaded:
            model.history.is_directory_gone = False
            ends.append(self._plan.tell(report.of_load(model, model.poll(0.0))))
        await self._plan.until(lambda: all(each.is_over for each in ends))
        return report.document

    def _choose(self, names: Iterable[str]) -> list[ServedModel]:
        """Return the models to look at: all, or in mode explicit those that are loaded.

        A model that a client has loaded with another configuration does not follow the files.
        """
        if not self._is_explicit:
            return [self._server.get_or_create_model(name) for name in names]
        models = [self._server.models[name] for name in names if name in self._server.models]
        return [model for model in models if _is_in_use(model) and model.history.override is None]


def _is_in_use(model: ServedModel) -> bool:
    return (
        any(version.is_serving for version in model.versions.values())
        or model.was_explicitly_loaded
    )


class _Report:
    """The outcome for each model."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {
            kind: [] for kind in ("loaded", "unchanged", "unloaded", "gone")
        }
        self.failures: dict[str, str] = {}

    async def of_load(self, model: ServedModel, loaded: Promise[None]) -> None:
        try:
            await loaded
        except ZmqTritonError as error:
            self.failures[model.name] = error.text
        else:
            kind = "unchanged" if model.history.is_unchanged else "loaded"
            self.outcomes[kind].append(model.name)

    async def of_unload(self, name: str, unloaded: Promise[None]) -> None:
        await unloaded
        self.outcomes["unloaded"].append(name)

    @property
    def document(self) -> dict[str, Any]:
        return {**self.outcomes, "failed": self.failures}
