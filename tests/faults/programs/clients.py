"""Threads that make requests of programs, and compare each answer with the oracle's, twice."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections import deque
from typing import Any, NamedTuple, Protocol

import numpy as np

from tests.faults.programs.drawing import Program
from tests.faults.programs.oracle import Arrays, Oracle, arrays
from tests.faults.programs.plan import Plan
from tests.faults.programs.report import Report
from tests.faults.programs.ways import (
    LostError,
    Place,
    Question,
    RefusedError,
    UnansweredError,
    Way,
)

#: Answers that a client keeps to look at again: for so many seconds, calls, and reloads.
_AGAIN_S, _AGAIN_CALLS = 1.0, 10
_MOST_KEPT = 12
_AFTER_ERROR_S = 0.05
_MOST_FORKS = 20
#: Elements that an input has less than its size says, so that few calls are of one length.
_LESS = 64


class Surroundings(Protocol):
    """The world, as its clients see it."""

    plan: Plan
    report: Report
    oracle: Oracle
    programs: list[Program]

    @property
    def is_over(self) -> bool: ...


class _KeptAnswer(NamedTuple):
    """An answer to look at again."""

    question: Question
    answers: list[Arrays]
    expected: list[Arrays]
    at_s: float
    at_call: int
    at_reload: int


class Client:
    """A thread that makes requests by one way."""

    def __init__(self, world: Surroundings, way: Way, number: int) -> None:
        self._world = world
        self._way = way
        self._name = type(way).__name__
        self._chance = world.plan.chance(f"client {number}")
        #: Its own, so that the same requests are made with any number of looks.
        self._chances_of_looks = world.plan.chance(f"looks of client {number}")
        #: The programs that this way leads to.
        self.programs = [
            program
            for program in world.programs
            if program.state <= way.most_elements and way.can_ask(program)
        ]
        self._kept: deque[_KeptAnswer] = deque()
        self._calls = 0
        #: Forks that look at answers which this process has dropped by then.
        self._forks: list[int] = []
        #: Earlier questions, which may be asked again: their answers may be in the cache.
        self._earlier: deque[Question] = deque(maxlen=3)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def has_programs(self) -> bool:
        """Return whether there is anything to do; the way is given back if not."""
        if not self.programs:
            self._way.end()
        return bool(self.programs)

    def _run(self) -> None:
        while not self._world.is_over:
            self._calls += 1
            self._act()
            self._look_again()
            if self._way.lends_answers and "ends" in self._world.plan.features:
                self._end_something()
        self._way.close()
        while self._kept:
            self._look(self._kept.popleft(), "after the end")
        self._await_forks()
        self._way.end()

    def _end_something(self) -> None:
        """Close the connection and keep its answers, or leave them to a fork alone, by chance."""
        chance = self._chances_of_looks.random()
        if chance < 0.03:
            self._way.close()
        elif chance < 0.04 and self._kept and len(self._forks) < _MOST_FORKS:
            child = os.fork()
            if not child:
                time.sleep(_AGAIN_S)
                os._exit(sum(1 for kept in self._kept if self._fault(kept)))
            self._forks.append(child)
            self._kept.clear()

    def _await_forks(self) -> None:
        for child in self._forks:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            self._world.report.add_looks(1)
            if status:
                text = f"world {self._world.plan.name}: a fork ends with {status}"
                self._world.report.add_wrong(f"{self._name}, in a fork", text, None)

    def _act(self) -> None:
        chance = self._chance
        if self._earlier and chance.random() < 0.15:
            self.ask(chance.choice(self._earlier))
            return
        program = chance.choice(self.programs)
        if program.state:
            self.ask_sequence(program)
            return
        question = self.question(program)
        if self._way.has_room(question):
            self.ask(question)
            self._earlier.append(question)

    def question(self, program: Program, place: Place | None = None) -> Question:
        """Return a new request."""
        chance, plan = self._chance, self._world.plan
        [size] = chance.choices([*plan.sizes], [*plan.sizes.values()])
        count = min(size // 8, self._way.most_elements // 2) - chance.randrange(_LESS)
        call = self._world.report.new_call()
        inputs = [
            arrays.ramp(call, number, program.state or count) for number in range(program.inputs)
        ]
        return Question(program, call, inputs, place)

    def ask_sequence(self, program: Program) -> bool:
        """Make the requests of a sequence; return whether each has a right answer."""
        length = self._chance.randint(1, 5)
        state = np.zeros(program.state, np.uint64)
        sequence = 0
        for number in range(length):
            place = Place(sequence, is_start=not number, is_end=number == length - 1)
            question = self.question(program, place)
            if not number:
                sequence = question.call
                question = question._replace(place=place._replace(sequence=sequence))
            expected, state = self._world.oracle.step(program.name, question.inputs, state)
            if not self.ask(question, expected):
                return False
        return True

    def ask(self, question: Question, expected: list[Arrays] | None = None) -> bool:
        """Make a request, and look at its answer; return whether there is one that is right."""
        world, report = self._world, self._world.report
        begun_s = time.monotonic()
        try:
            report.add_call(self._name)
            answers = self._way.ask(question)
        except RefusedError as error:
            self._note(f"{self._name}: {error}")
            return False
        except LostError as error:
            self._way.close()
            self._note(f"{self._name}: {error}")
            return False
        except UnansweredError as error:
            self._way.close()
            report.add_unanswered(f"{error}; world {world.plan.name} {question.program}")
            return False
        except Exception:  # noqa: BLE001 - an answer that no client understands
            self._way.close()
            text = f"{self._name}: {traceback.format_exc(limit=-3)}"
            report.add_wrong("not understood", text, question.program)
            return False
        waited_s = time.monotonic() - begun_s
        if waited_s > self._way.patience_s:
            report.add_unanswered(f"{waited_s:.0f} s over {self._name}: {question.program}")
        report.add_answer()
        if expected is None:
            expected = world.oracle.answers(question.program.name, question.inputs)
        kept = _KeptAnswer(
            question, answers, expected, time.monotonic(), self._calls, report.reloads
        )
        is_right = self._look(kept, "at once")
        if is_right and self._chance.random() < 0.4:
            self._kept.append(kept)
        return is_right

    def _note(self, error: str) -> None:
        self._world.report.add_error(error)
        time.sleep(_AFTER_ERROR_S)

    # --------------------------------------------------------------------- looks

    def _look_again(self) -> None:
        looks = self._world.plan.looks if self._way.lends_answers else 0
        limit = max(_MOST_KEPT, looks)
        while self._kept and (self._is_old(self._kept[0]) or len(self._kept) > limit):
            self._look(self._kept.popleft(), "again")
        for kept in self._chances_of_looks.sample([*self._kept], min(looks, len(self._kept))):
            self._look(kept, "after a call")
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
        report, program = self._world.report, kept.question.program
        report.add_looks(sum(map(len, kept.expected)))
        fault = self._fault(kept)
        if fault:
            call = kept.question.call
            words = f"world {self._world.plan.name}: {program.name} in call {call}: {fault}"
            report.add_wrong(f"{self._name}, {when}, {_kind_of(program)}", words, program)
        return not fault

    def _fault(self, kept: _KeptAnswer) -> str:
        program, numbers = kept.question.program, self._world.report.numbers
        return fault_of(program, kept.expected, kept.answers, numbers)


def fault_of(program: Program, expected: list[Arrays], answers: list[Arrays], calls: int) -> str:
    """Return the first difference of an answer, "" if it is right. An output may be unknown."""
    if len(answers) != len(expected):
        return f"{len(answers)} responses instead of {len(expected)}"
    pairs = zip(expected, _in_order_of(expected, answers, program), strict=True)
    for number, (outputs, actual) in enumerate(pairs):
        if len(outputs) != len(actual):
            return f"{len(actual)} outputs of response {number} instead of {len(outputs)}"
        for output, (one, other) in enumerate(zip(outputs, actual, strict=True)):
            difference = "" if other is None else arrays.difference(one, other, calls)
            if difference:
                return f"OUT{output} of response {number}: {difference}"
    return ""


def _in_order_of(expected: list[Arrays], answers: list[Arrays], program: Program) -> list[Arrays]:
    """Return the answers in the order that is expected.

    Instances of a step behind a stream answer next to each other, so an ensemble has no order.
    """
    if program.kind != "ensemble" or len(answers) < 2:
        return answers
    rest, ordered = [*answers], []
    for one in expected:
        equal = (n for n, other in enumerate(rest) if _are_equal(one, other))
        ordered.append(rest.pop(next(equal, 0)))
    return ordered


def _are_equal(one: Arrays, other: Arrays) -> bool:
    pairs: Any = zip(one, other, strict=False)
    return all(array is not None and np.array_equal(own, array) for own, array in pairs)


def _kind_of(program: Program) -> str:
    calls = any(step[0] == "call" for step in program.steps)
    words = ["streamed"] * program.is_streamed + ["bound"] * program.is_bound
    words += ["sequence of a"] * bool(program.state)
    return " ".join([*words, program.kind, *["with BLS"] * calls])
