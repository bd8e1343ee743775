"""One server with the programs of a seed, and its clients."""

from __future__ import annotations

import random
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.faults.programs import drawing, repository
from tests.faults.programs.drawing import Program
from tests.faults.programs.oracle import Arrays, Oracle, arrays
from tests.faults.programs.report import Report
from tests.faults.programs.ways import (
    PATIENCE_S,
    WAYS,
    LostError,
    Question,
    RefusedError,
    UnansweredError,
    Way,
)
from tests.support.server import Server

KIB = 1 << 10
#: Sizes of inputs in bytes, and how often each is drawn.
SIZES = {KIB: 4, 70 * KIB: 5, 300 * KIB: 5, KIB * KIB: 2, 3 * KIB * KIB: 1}
#: Answers that a client keeps to look at again: for so many seconds, calls, and reloads.
_AGAIN_S, _AGAIN_CALLS = 1.0, 10
_MOST_KEPT = 12
_RELOAD_EVERY_S, _RELOAD_EVERY = 3.0, 300


class Plan(NamedTuple):
    """The plan of a world."""

    seed: int
    number: int
    calls: int
    features: Sequence[str]
    models: int = 8
    clients: int = 6
    deadline_s: float = float("inf")
    #: Bytes of an input at most; 0 if each size may be drawn.
    largest: int = 0

    @property
    def name(self) -> str:
        return f"{self.seed}/{self.number}"

    def chance(self, of: object) -> random.Random:
        return random.Random(f"{self.name} {of}")


class _KeptAnswer(NamedTuple):
    """An answer to look at again."""

    question: Question
    answers: list[Arrays]
    expected: list[Arrays]
    at_s: float
    at_call: int
    at_reload: int


class _Client:
    """A thread that makes requests."""

    def __init__(self, world: World, way: Way, number: int) -> None:
        self._world = world
        self._way = way
        self._chance = world.plan.chance(f"client {number}")
        self._kept: deque[_KeptAnswer] = deque()
        self._calls = 0
        #: Earlier questions, which may be asked again: their answers may be in the cache.
        self._earlier: deque[Question] = deque(maxlen=3)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._world.is_over:
            self._calls += 1
            question = self._question()
            if question is not None:
                self._ask(question)
            self._look_again()
        while self._kept:
            self._look(self._kept.popleft(), "at the end")
        self._way.close()
        self._way.end()

    def _question(self) -> Question | None:
        chance, world = self._chance, self._world
        if self._earlier and chance.random() < 0.15:
            return chance.choice(self._earlier)
        program = chance.choice(world.programs)
        [size] = chance.choices([*world.sizes], [*world.sizes.values()])
        count = min(size // 8, self._way.most_elements // 2)
        # not all of a page, and calls differ in it
        count -= chance.randrange(64)
        call = world.report.add_call(type(self._way).__name__)
        inputs = [arrays.ramp(call, number, count) for number in range(program.inputs)]
        question = Question(program, call, inputs)
        return question if self._way.can_ask(question) else None

    def _ask(self, question: Question) -> None:
        world, way = self._world, type(self._way).__name__
        begun_s = time.monotonic()
        try:
            answers = self._way.ask(question)
        except RefusedError as error:
            world.report.add_error(f"{way}: {error}")
            return
        except LostError as error:
            world.report.add_error(f"{way}: {error}")
            self._way.close()
            return
        except UnansweredError as error:
            self._way.close()
            world.report.add_unanswered(f"{error}; world {world.plan.name} {question.program}")
            return
        except Exception:  # noqa: BLE001 - an answer that no client understands
            self._way.close()
            text = f"{way}: {traceback.format_exc(limit=-3)}"
            world.report.add_wrong("not understood", text, question.program)
            return
        waited_s = time.monotonic() - begun_s
        if waited_s > PATIENCE_S:
            world.report.add_unanswered(f"{waited_s:.0f} s over {way}: {question.program}")
        expected = world.oracle.answers(question.program.name, question.inputs)
        with world.report.lock:
            world.report.answered += 1
        kept = _KeptAnswer(
            question, answers, expected, time.monotonic(), self._calls, world.report.reloads
        )
        if self._look(kept, "at once") and self._chance.random() < 0.4:
            self._kept.append(kept)
        self._earlier.append(question)

    def _look_again(self) -> None:
        while self._kept and (self._is_old(self._kept[0]) or len(self._kept) > _MOST_KEPT):
            self._look(self._kept.popleft(), "again")
        if self._kept and self._chance.random() < 0.2:
            self._look(self._kept[-1], "again soon")

    def _is_old(self, kept: _KeptAnswer) -> bool:
        return (
            time.monotonic() > kept.at_s + _AGAIN_S
            and self._calls > kept.at_call + _AGAIN_CALLS
            and self._world.report.reloads > kept.at_reload
        )

    def _look(self, kept: _KeptAnswer, when: str) -> bool:
        """Compare an answer with what it must be; return True if it is right."""
        way, (program, call, _) = type(self._way).__name__, kept.question
        report = self._world.report
        report.add_looks(sum(map(len, kept.expected)))
        fault = ""
        if len(kept.answers) != len(kept.expected):
            fault = f"{len(kept.answers)} responses instead of {len(kept.expected)}"
        pairs = zip(  # noqa: B905 - their numbers may differ
            kept.expected, _in_order_of(kept.expected, kept.answers, program)
        )
        for number, (expected, answer) in enumerate(pairs):
            for output, (one, other) in enumerate(zip(answer, expected, strict=True)):
                difference = arrays.difference(other, one, report.calls)
                if difference:
                    fault = fault or f"OUT{output} of response {number}: {difference}"
        if fault:
            words = f"world {self._world.plan.name}: {program.name} in call {call}: {fault}"
            report.add_wrong(f"{way}, {when}, {_kind_of(program)}", words, program)
        return not fault


def _in_order_of(expected: list[Arrays], answers: list[Arrays], program: Program) -> list[Arrays]:
    """Return the answers in the order that is expected.

    Instances of a step behind a stream answer next to each other, so an ensemble has no order.
    """
    if program.kind != "ensemble" or len(answers) < 2:
        return answers
    rest, ordered = [*answers], []
    for one in expected:
        equal = (n for n, other in enumerate(rest) if all(map(np.array_equal, one, other)))
        ordered.append(rest.pop(next(equal, 0)) if rest else [])
    return ordered + rest


def _kind_of(program: Program) -> str:
    calls = any(step[0] == "call" for step in program.steps)
    kind = f"streamed {program.kind}" if program.is_streamed else program.kind
    return f"{kind}{' with BLS' if calls else ''}"


class World:
    """A server, and everything that happens to it."""

    def __init__(
        self,
        plan: Plan,
        report: Report,
        directory: Path,
        programs: Sequence[Program] | None = None,
    ) -> None:
        """Make a server that is not started, with these programs or those of the seed."""
        self.plan = plan
        self.report = report
        self.programs = programs or drawing.draw(plan.name, plan.features, plan.models)
        self.by_name = {program.name: program for program in self.programs}
        self.oracle = Oracle(self.programs)
        self.server = self._make_server(directory)
        largest = plan.largest or max(SIZES)
        self.sizes = {size: weight for size, weight in SIZES.items() if size <= largest}
        self._stop = threading.Event()
        self._last_call = report.calls + plan.calls

    def _make_server(self, directory: Path) -> Server:
        chance = self.plan.chance("server")
        options = [
            "--model-control-mode=explicit",
            "--load-model=*",
            f"--runtime-directory={directory / 'r'}",
        ]
        if "cache" in self.plan.features:
            options.append(f"--cache-config=local,size={chance.choice((4, 64)) << 20}")
        if chance.random() < 0.5:
            options.append("--http-workers=2")
        server = Server(directory / "s", options=options)
        server.scratch.chmod(0o777)
        for program in self.programs:
            repository.write(server, program)
        return server

    @property
    def is_over(self) -> bool:
        return (
            self._stop.is_set()
            or self.report.calls >= self._last_call
            or time.monotonic() > self.plan.deadline_s
        )

    def run(self) -> None:
        begun_s, first = time.monotonic(), self.report.calls
        with self.server, self._clients() as clients:
            ready_s = time.monotonic()
            reload_at, reload_at_s = first + _RELOAD_EVERY, ready_s + _RELOAD_EVERY_S
            while any(client.thread.is_alive() for client in clients):
                time.sleep(0.05)
                is_due = self.report.calls > reload_at or time.monotonic() > reload_at_s
                if is_due and not self.is_over:
                    self._reload()
                    reload_at = self.report.calls + _RELOAD_EVERY
                    reload_at_s = time.monotonic() + _RELOAD_EVERY_S
            over_s = time.monotonic()
        calls = self.report.calls - first
        print(
            f"world {self.plan.name}: ready after {ready_s - begun_s:.1f} s, {calls} calls in "
            f"{over_s - ready_s:.1f} s, ended in {time.monotonic() - over_s:.1f} s",
            flush=True,
        )
        self.report.read_models(self.server.scratch, self.by_name, self.plan.name)

    @contextmanager
    def _clients(self) -> Iterator[list[_Client]]:
        kinds = [name for name in WAYS if name in self.plan.features]
        chance = self.plan.chance("ways")
        # each kind in some world, and plain ones in all
        drawn = [kinds[0], *(chance.choice(kinds) for _ in range(self.plan.clients - 1))]
        clients = [
            _Client(self, WAYS[name](self.server, number), number)
            for number, name in enumerate(drawn)
        ]
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

    def _reload(self) -> None:
        """Load a model again, with code that differs in a comment."""
        chance = self.plan.chance(f"reload {self.report.reloads}")
        program = chance.choice([p for p in self.programs if p.kind != "ensemble"])
        code = self.server.repository / program.name / "1" / "model.py"
        code.write_text(f"{code.read_text()}# {self.report.reloads}\n")
        error = self.server.control_model("load", program.name)
        if error:
            self.report.add_error(f"load: {error}")
        self.report.reloads += 1


def run(plan: Plan, report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        World(plan, report, Path(folder)).run()


def describe(programs: Sequence[Program]) -> Any:
    return "\n".join(f"  {program}" for program in programs)
