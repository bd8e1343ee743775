"""The models that are loaded without a request: at start, and at each poll.

Clients can connect once each load has succeeded or failed. In mode poll, the repository is compared
with the loaded models again and again. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zmqtriton.supervisor.actions import PrintError, RepositoryNames, ShowTables
from zmqtriton.supervisor.features.feature import HostServer
from zmqtriton.supervisor.models.load import WAITS_FOR_OTHERS
from zmqtriton.supervisor.models.model_report import is_silent, table_rows
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.settings import Policy
from zmqtriton.supervisor.story import All, Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ZmqTritonError

#: Changed files are loaded once they have not changed again for this long.
SETTLE_S = 1.0
#: Seconds between two looks for a missing repository.
_LOOK_S = 1.0

#: Seconds until the first report of the progress, and between two.
_FIRST_S, _EVERY_S = 2.0, 5.0
_MAX_PHASES = 3

_NOT_ALL = "failed to load all models"
_MAX_NAMED = 10


class StartupServer(HostServer, Protocol):
    """The server, as its start needs it."""

    def start_problem(self, ready: Sequence[str]) -> str:
        """Return why a server with these models cannot begin to serve; "" if it can."""

    def accept_clients(self) -> None:
        """Let clients connect."""

    async def finish_move(self) -> None:
        """Repeat the predecessor's control calls about models."""

    def publish(self, news: wire.RepositoryState | wire.ForgetModel) -> None:
        """Tell all frontends."""

    def forget_model(self, name: str) -> None:
        """Forget a model that is gone with its directory."""


class Startup:
    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        served: StartupServer,
        end_of_predecessor: Promise[None],
    ) -> None:
        self._plan = plan
        self._policy = policy
        self._server = served
        self._scope = plan.scope()
        self._left: set[str] = set()
        self._failed: list[str] = []
        self._progress = plan.scope()
        self.is_over = False
        #: Requests wait for models that the server before has as yet.
        self.is_moving = policy.one_by_one
        #: Models that are loaded when that has ended; None before they are known, and afterwards.
        self._moving: tuple[str, ...] | None = None
        self._end_of_predecessor = end_of_predecessor
        #: The repository cannot be listed, and the server waits for it.
        self.is_repository_missing = False

    def begin(self) -> None:
        self._scope.tell(self._tell())

    def stop(self) -> None:
        """Begin nothing new."""
        self._progress.cancel()
        self._scope.cancel()

    async def _tell(self) -> None:
        """Load the models, let clients connect, and poll if the mode is poll."""
        policy = self._policy
        self._progress.tell(self._report_progress())
        listing = await self._list()
        names = policy.startup_models
        if policy.control_mode != "explicit" or names == ("*",):
            names = tuple(listing)
        if policy.one_by_one:
            await self._wait_for_end_of_predecessor(names)
        await self._load(names)
        if not self._may_serve():
            return
        if policy.one_by_one:
            await self._server.finish_move()
            self.is_moving = False
            self._server.publish(wire.RepositoryState(0))
        else:
            self._server.accept_clients()
        if policy.control_mode == "poll" and policy.poll_s > 0:
            await self._poll()

    async def _list(self) -> RepositoryNames:
        """Return the names of all models; wait for ever for a missing repository.

        As in Triton, the server serves no model until then, unless it is to end.
        """
        while True:
            try:
                names = await self._server.list_repository(is_patient=True)
            except ZmqTritonError as error:
                self._note_missing(error)
            else:
                if self.is_repository_missing:
                    self._plan.log("I", "the model repository can be listed; its models are loaded")
                return names
            await self._plan.pause(_LOOK_S)

    def _note_missing(self, error: ZmqTritonError) -> None:
        if self._policy.exit_on_error or self._policy.one_by_one:
            self._give_up(error.text)
        elif not self.is_repository_missing:
            self._progress.cancel()
            self.is_repository_missing = True
            self._plan.log("E", f"Internal: {error.text}")
            self._server.publish(wire.RepositoryState(1))
            self._server.accept_clients()

    async def _wait_for_end_of_predecessor(self, names: tuple[str, ...]) -> None:
        """Let clients connect, whose requests wait until the server before has ended."""
        self._server.publish(wire.RepositoryState(0, 1))
        self._moving = names
        self._server.accept_clients()
        await self._end_of_predecessor
        self._moving = None
        self._plan.log("I", "The server before has ended; its models are loaded here.")

    async def _load(self, names: Sequence[str]) -> None:
        self._left = set(names)
        await All([self._scope.tell(self._try(name)) for name in names])
        self.is_over = True
        self._scope.whenever(self._gone, self._forget)
        self._progress.cancel()
        if self.is_repository_missing:
            # not before the models are known: a server without models is ready
            self.is_repository_missing = False
            self._server.publish(wire.RepositoryState(0))

    async def _try(self, name: str) -> None:
        try:
            await self._server.get_or_create_model(name).load()
        except ZmqTritonError:  # the table of models has why
            self._failed.append(name)
        self._left.discard(name)

    async def _report_progress(self) -> None:
        began_s = self._plan.now_s
        await self._plan.pause(_FIRST_S)
        while True:
            phases = self._find_phases()
            shown = ", ".join(f"{name} ({phase})" for name, phase in phases[:_MAX_PHASES])
            more = len(phases) - _MAX_PHASES
            shown += f" and {more} more" if more > 0 else ""
            self._plan.log(
                "I",
                f"still starting after {self._plan.now_s - began_s:.0f} s, waiting for {shown}",
            )
            await self._plan.pause(_EVERY_S)

    def _find_phases(self) -> list[tuple[str, str]]:
        """Return the models that are not tried yet, each with the step that it waits for."""
        if self._moving is not None:
            return [(name, "the server before ends") for name in sorted(self._moving)]
        left = [self._server.models[name] for name in sorted(self._left)]
        # those that something happens for come first
        phases = [(model.name, model.load_phase) for model in left]
        phases.sort(key=lambda phase: phase[1] == WAITS_FOR_OTHERS)
        return phases or [("the model repository", "it is listed")]

    def news(self) -> Iterable[wire.RepositoryState]:
        """Return the messages for a new frontend."""
        state = wire.RepositoryState(int(self.is_repository_missing), int(self.is_moving))
        return [state] if any(state) else []

    def _may_serve(self) -> bool:
        """Show the models; end the server if it must not serve without the failed ones."""
        models = self._server.models.values()
        backends = {m.history.backend[:2] for m in models if m.history.backend is not None}
        rows = sorted(row for model in models for row in table_rows(model))
        self._plan.enqueue(ShowTables(rows, sorted(backends)))
        # the server before is gone: the models that are left are better than none
        if self._failed and self._policy.exit_on_error and not self._policy.one_by_one:
            self._give_up(f"{_NOT_ALL}\n{self._describe_failed(rows)}")
            return False
        if problem := self._server.start_problem([n for n, _, state in rows if state == "READY"]):
            self._plan.enqueue(PrintError(problem))
            self._server.stop(1)
            return False
        if self._failed:
            self._plan.log("E", f"Internal: {_NOT_ALL}")
        return True

    def _describe_failed(self, rows: list[tuple[str, str, str]]) -> str:
        """Return a line for each model that was not loaded, made of its row in the table."""
        reasons = {name: status for name, _, status in rows if status != "READY"}
        names = sorted(self._failed)
        lines = [f"  {name}: {_summary(reasons.get(name, ''))}" for name in names[:_MAX_NAMED]]
        if len(names) > _MAX_NAMED:
            lines.insert(0, f"  {len(names) - _MAX_NAMED} more, see the table above")
        return "\n".join(["Not loaded (--exit-on-error=false serves the others):", *lines])

    def _give_up(self, text: str) -> None:
        self.is_over = True
        self._progress.cancel()
        self._plan.enqueue(PrintError(f"error: creating server: Internal - {text}"))
        self._server.stop(1)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._server.forget_model(name)
            self._server.publish(wire.ForgetModel(name))

    def _gone(self) -> list[str]:
        """Return the models that have ended and whose directories are gone."""
        return [
            model.name
            for model in self._server.models.values()
            if model.history.is_directory_gone and model.has_ended
        ]

    # ------------------------------------------------------------------- polls

    async def _poll(self) -> None:
        """Compare the repository with the loaded models; the first time right after the start."""
        while True:
            due_s = self._plan.now_s + self._policy.poll_s
            self._plan.log("V", "Polling model repository")
            try:
                self._compare(await self._server.list_repository())
            except ZmqTritonError as error:
                self._plan.log("E", f"failed to poll the model repository: {error.text}")
            await self._plan.pause(max(due_s - self._plan.now_s, 0.0))

    def _compare(self, listing: RepositoryNames) -> None:
        for name, problem in listing.items():
            if name not in self._server.models:
                self._plan.log("I", f"model '{name}' was added")
            model = self._server.get_or_create_model(name)
            if not is_silent(problem):
                model.history.is_directory_gone = False
                if not model.is_loading:
                    model.was_explicitly_loaded = True
                    model.poll(min(SETTLE_S, self._policy.poll_s))
        for model in [m for m in self._server.models.values() if m.is_gone_from(listing)]:
            self._plan.log("I", f"model '{model.name}' was removed")
            model.history.record_gone()
            model.unload()


def _summary(status: str) -> str:
    """Return the first statement of a status on one line, without stack or lines of a file."""
    first, _, _ = status.removeprefix("UNAVAILABLE: ").partition("\n\n")
    return " ".join(line for line in first.splitlines() if not line.startswith(" "))
