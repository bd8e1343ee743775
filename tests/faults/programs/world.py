"""One server with the programs of a seed, its clients, and everything that happens to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmqtriton
from tests.faults.programs import drawing, repository
from tests.faults.programs.clients import Client
from tests.faults.programs.copies import Canary, Captures
from tests.faults.programs.drawing import Program
from tests.faults.programs.kills import Killer
from tests.faults.programs.oracle import Oracle, bound_class, forget_kept
from tests.faults.programs.plan import Plan
from tests.faults.programs.report import Report
from tests.faults.programs.ways import PATIENCE_S, WAYS, runtime_directory
from tests.support.server import Server
from tests.support.waiting import eventually

#: A model is loaded again after so many seconds or calls.
_RELOAD_EVERY_S, _RELOAD_EVERY = 3.0, 300
_LOOK_S = 0.05
_AGAIN_WITHIN_S = 60.0


class World:
    """A server that runs during `run`."""

    def __init__(self, plan: Plan, report: Report, directory: Path) -> None:
        """Make a server that is not started, with the programs of the seed."""
        self.plan = plan
        self.report = report
        self.programs = drawing.draw(plan.name, plan.features, plan.models)
        self.oracle = Oracle(self.programs)
        self._captures = Captures(directory)
        self.server = self._make_server(directory)
        self._stop = threading.Event()
        self._last_call = report.calls + plan.calls
        #: Has the models of this process.
        self._guest: Any = None
        self._canary = self._choose_canary()

    def _choose_canary(self) -> Canary | None:
        chance = self.plan.chance("canary")
        able = [p for p in self.programs if p.can_have_copies]
        if "canaries" not in self.plan.features or not able or chance.random() < 0.5:
            return None
        return Canary(self.server, chance.choice(able))

    def _make_server(self, directory: Path) -> Server:
        chance, features = self.plan.chance("server"), self.plan.features
        options = ["--model-control-mode=explicit", "--load-model=*"]
        if "cache" in features:
            options.append(f"--cache-config=local,size={chance.choice((4, 64)) << 20}")
        if chance.random() < 0.5:
            options.append("--http-workers=2")
        options += [f"--{name}" for name in ("jobs", "routes") if name in features]
        options += ["--zmq-door"] * ("door" in features)
        if self._has_captures:
            options += self._captures.options
        # as the guests have it
        options.append(f"--runtime-directory={directory / 'r'}")
        server = Server(directory / "s", options=options)
        server.scratch.chmod(0o777)
        for program in self.programs:
            if not program.is_bound:
                repository.write(server, program, self.plan.looks)
        return server

    @property
    def _has_captures(self) -> bool:
        is_drawn = self.plan.chance("captures").random() < 0.4
        return "captures" in self.plan.features and is_drawn

    @property
    def is_over(self) -> bool:
        return (
            self._stop.is_set()
            or self.report.calls >= self._last_call
            or time.monotonic() > self.plan.deadline_s
        )

    def run(self) -> None:
        """Start the server, make the calls of the plan, and stop it."""
        begun_s, first = time.monotonic(), self.report.calls
        with self.server:
            self._bind_all()
            if self._canary is not None:
                self._canary.start(self.report)
            ready_s = time.monotonic()
            with self._clients() as clients:
                self._watch(clients)
            over_s = time.monotonic()
            self._check_all()
            self._check_copies()
            if self._guest is not None:
                self._guest.close()
                forget_kept()
        print(
            f"world {self.plan.name}: ready after {ready_s - begun_s:.1f} s, "
            f"{self.report.calls - first} calls in {over_s - ready_s:.1f} s, ended in "
            f"{time.monotonic() - over_s:.1f} s",
            flush=True,
        )
        self.report.read_models(self.server.scratch, self.programs, self.plan.name)

    def _watch(self, clients: Sequence[Client]) -> None:
        """Load models again, and kill processes, until the clients have ended."""
        killer = Killer(self.server, self.report, self.plan.chance("kills"))
        reload_at, reload_at_s = self.report.calls + _RELOAD_EVERY, time.monotonic()
        while any(client.thread.is_alive() for client in clients):
            time.sleep(_LOOK_S)
            if self.is_over:
                continue
            if "kills" in self.plan.features:
                killer.turn()
            if self.report.calls > reload_at or time.monotonic() > reload_at_s + _RELOAD_EVERY_S:
                self._reload()
                reload_at, reload_at_s = self.report.calls + _RELOAD_EVERY, time.monotonic()

    @contextmanager
    def _clients(self) -> Iterator[list[Client]]:
        kinds = [name for name in WAYS if name in self.plan.features]
        chance = self.plan.chance("ways")
        # a plain one in each world
        drawn = [kinds[0], *(chance.choice(kinds) for _ in range(self.plan.clients - 1))]
        made = [
            Client(self, WAYS[name](self.server, number), number)
            for number, name in enumerate(drawn)
        ]
        clients = [client for client in made if client.has_programs()]
        for client in clients:
            client.thread.start()
        try:
            yield clients
        finally:
            self._stop.set()
            for client in clients:
                client.thread.join(3 * PATIENCE_S)
                if client.thread.is_alive():
                    self.report.add_unanswered(f"a client never ends: world {self.plan.name}")

    # ------------------------------------------------------------------- changes

    def _bind_all(self) -> None:
        bound = [program for program in self.programs if program.is_bound]
        if bound:
            self._guest = zmqtriton.connect(path=runtime_directory(self.server))
        for program in bound:
            self._bind(program)

    def _bind(self, program: Program) -> None:
        described = repository.described(program, self.server.scratch, self.plan.looks)
        classes = [bound_class(described)] * program.count
        config = repository.bound_config(program)
        self._guest.bind(program.name, classes, config=config, timeout_s=PATIENCE_S)

    def _reload(self) -> None:
        """Load a model again, with code that differs in a comment."""
        tried = self._canary and self._canary.program
        chance = self.plan.chance(f"reload {self.report.reloads}")
        program = chance.choice([p for p in self.programs if p.kind == "model" and p is not tried])
        try:
            if program.is_bound:
                self._bind(program)
            else:
                code = self.server.repository / program.name / "1" / "model.py"
                code.write_text(f"{code.read_text()}# {self.report.reloads}\n")
                error = self.server.control_model("load", program.name)
                if error:
                    self.report.add_error(f"load: {error}")
        except Exception as error:  # noqa: BLE001 - a kill may end any connection
            self.report.add_error(f"load: {error!r}")
        self.report.reloads += 1

    # ----------------------------------------------------------------------- end

    def _check_all(self) -> None:
        """Make a request of each program: all of them must be served, whatever was killed."""
        for program in self.programs:
            name = "stream" if program.is_streamed else "http"
            way = WAYS[name](self.server, self.plan.clients)
            client = Client(self, way, self.plan.clients)
            if "kills" in self.plan.features:
                self._check(client, program)
            way.close()

    def _check_copies(self) -> None:
        if self._canary is not None:
            self._canary.check(self.report, self.plan.name)
        if self._has_captures:
            runtime = runtime_directory(self.server)
            self._captures.check(runtime, self.programs, self.report, self.plan.name)

    def _check(self, client: Client, program: Program) -> None:
        def is_served() -> bool:
            if program.state:
                return client.ask_sequence(program)
            return client.ask(client.question(program))

        try:
            eventually(is_served, _AGAIN_WITHIN_S, f"{program.name} is served")
        except AssertionError as error:
            self.report.add_unanswered(f"{error}: world {self.plan.name} {program}")
