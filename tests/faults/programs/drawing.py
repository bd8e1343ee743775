"""Programs drawn from a seed: models that call models, and ensembles of them, as plain data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Executions of models that one request may cause.
_MOST_COST = 14
#: Outputs of an ensemble, whose names are sorted as texts.
_MOST_OUTPUTS = 8
#: Elements of the state of sequences.
_STATES = (300, 9_000, 40_000, 130_000)
_PLACES = ("global", "self", "thread")


@dataclass
class Program:
    """A model or an ensemble. Both have the input CALL, inputs IN0, … and outputs OUT0, …."""

    name: str
    #: "model" or "ensemble".
    kind: str = "model"
    inputs: int = 1
    outputs: int = 1
    #: As `served/interpreter.py` has them.
    steps: list[list[Any]] = field(default_factory=list)
    #: Of an ensemble: the model, the names of its inputs, and those of its outputs.
    members: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    responses: int = 1
    #: Requests have any number of responses.
    is_streamed: bool = False
    is_async: bool = False
    #: "processes", "forks" or "threads".
    instances: str = "processes"
    count: int = 1
    is_cached: bool = False
    #: Elements of the state that its sequences have, and of each input; 0 without sequences.
    state: int = 0
    #: A model of the client's own process.
    is_bound: bool = False
    has_route: bool = False
    #: Executions of models for one request.
    cost: int = 1

    @property
    def can_have_copies(self) -> bool:
        """True if a canary may get copies of its requests."""
        return self.kind == "model" and not (self.is_streamed or self.state or self.is_bound)

    def __str__(self) -> str:
        return str({key: value for key, value in asdict(self).items() if value})


class _Drawing:
    """The programs of one server."""

    def __init__(self, chance: random.Random, features: Sequence[str]) -> None:
        self._chance = chance
        self._features = features
        self.programs: list[Program] = []

    def _happens(self, probability: float, feature: str = "") -> bool:
        return (self._chance.random() < probability) and (not feature or feature in self._features)

    def _callees(self, room: int, *, streamed: bool = False) -> list[Program]:
        return [
            p
            for p in self.programs
            if p.cost <= room
            and p.is_streamed == streamed
            and not (p.state or p.is_bound)
            # the responses of others have no order
            and (not streamed or len(p.members) < 2)
            # one tensor may be both of its inputs
            and (p.inputs == 1 or "twins" in self._features)
        ]

    def add_all(self, count: int) -> None:
        """Add so many programs."""
        chance = self._chance
        for _ in range(max(2, count // 3)):
            self.add_model()
        if "decoupled" in self._features:
            self.add_model(is_streamed=True)
        for feature, add in (("bound", self.add_bound), ("sequences", self.add_sequence)):
            if self._happens(0.6, feature):
                add()
        while len(self.programs) < count:
            kind = chance.choice(("caller", "caller", "ensemble", "ensemble", "stream", "model"))
            if kind == "caller" and "bls" in self._features:
                is_streamed = self._happens(0.3, "decoupled")
                self.add_model(is_streamed=is_streamed, calls=chance.choice((1, 1, 2)))
            elif kind == "ensemble" and "ensembles" in self._features:
                self.add_ensemble()
            elif kind == "stream" and {"decoupled", "ensembles"}.issubset(self._features):
                self.add_streamed_ensemble()
            elif kind == "model":
                self.add_model(is_streamed=self._happens(0.25, "decoupled"))

    # ------------------------------------------------------------------- models

    def add_model(self, *, is_streamed: bool = False, calls: int = 0) -> None:
        chance = self._chance
        program = Program(f"p{len(self.programs)}", inputs=chance.choice((1, 1, 1, 2)))
        program.is_streamed = is_streamed
        program.is_async = self._happens(0.3, "async")
        program.count = chance.choice((1, 1, 2))
        if self._happens(0.3, "forks"):
            program.instances = chance.choice(("forks", "threads"))
        is_plain = self._happens(0.4) and not calls
        self._steps(program).draw(
            0 if is_plain else chance.randint(1, 5),
            [self._call_of(program) for _ in range(calls)],
        )
        if not is_streamed and self._happens(0.4, "cache"):
            program.is_cached = True
        self.programs.append(program)

    def _steps(self, program: Program) -> _Steps:
        keeps, passes = self._happens(0.75, "keeps"), "passing" in self._features
        return _Steps(self._chance, program, keeps=keeps, passes=passes)

    def _call_of(self, program: Program) -> tuple[str, list[Program]]:
        """Return a call within the room that the program has left."""
        chance = self._chance
        room = _MOST_COST - program.cost
        is_streamed = self._happens(0.3, "decoupled")
        callees = self._callees(room, streamed=is_streamed)
        if not callees:
            is_streamed, callees = False, self._callees(room)
        if not callees:
            return "exec", []
        chosen = [chance.choice(callees)]
        if not is_streamed and self._happens(0.4):
            chosen += [c for c in [chance.choice(callees)] if c.cost + chosen[0].cost <= room]
        program.cost += sum(one.cost for one in chosen)
        modes = ("exec", "exec", "async", "thread")
        return "decoupled" if is_streamed else chance.choice(modes), chosen

    def add_bound(self) -> None:
        """Add a model of the client's own process, which can call no other."""
        self.add_model(is_streamed=self._happens(0.3, "decoupled"))
        program = self.programs[-1]
        program.is_bound, program.instances, program.is_async = True, "processes", False

    def add_sequence(self) -> None:
        """Add a model whose sequences have a state."""
        chance = self._chance
        program = Program(f"p{len(self.programs)}", state=chance.choice(_STATES))
        program.count = chance.choice((1, 2))
        if self._happens(0.3, "forks"):
            program.instances = chance.choice(("forks", "threads"))
        self._steps(program).draw_sequence()
        self.programs.append(program)

    # ---------------------------------------------------------------- ensembles

    def add_ensemble(self) -> None:
        chance = self._chance
        program = Program(f"p{len(self.programs)}", "ensemble", inputs=chance.choice((1, 1, 2)))
        program.cost = 0
        tensors = [f"IN{number}" for number in range(program.inputs)]
        made: list[str] = []
        unread = set(tensors)
        for _ in range(chance.choice((1, 1, 2, 2, 3))):
            callees = [p for p in self._callees(_MOST_COST - program.cost) if p.kind != "ensemble"]
            if not callees:
                break
            member = chance.choice(callees)
            sources = sorted(unread) + tensors + made
            reads = [sources[0] if unread else chance.choice(sources)]
            reads += [chance.choice(sources) for _ in range(member.inputs - 1)]
            # two steps that read one tensor
            if self._happens(0.3):
                reads[0] = "IN0"
            unread -= set(reads)
            outputs = [f"T{len(made) + number}" for number in range(member.outputs)]
            made += outputs
            program.members.append((member.name, reads, outputs))
            program.cost += member.cost
        read = {name for _, reads, _ in program.members for name in reads}
        program.inputs = len(read.intersection(tensors))
        chosen = [name for name in made if name not in read or self._happens(0.3)]
        if not read.issuperset(tensors) or len(chosen) > _MOST_OUTPUTS:
            return
        names = {name: f"OUT{number}" for number, name in enumerate(chosen)}
        program.outputs = len(chosen)
        program.members = [
            (model, [names.get(n, n) for n in reads], [names.get(n, n) for n in outputs])
            for model, reads, outputs in program.members
        ]
        self.programs.append(program)

    def add_streamed_ensemble(self) -> None:
        """Add an ensemble whose first step is decoupled, with perhaps one model behind it."""
        sources = [p for p in self._callees(6, streamed=True) if p.kind == "model"]
        if not sources:
            return
        source = self._chance.choice(sources)
        program = Program(f"p{len(self.programs)}", "ensemble", source.inputs)
        program.responses, program.cost = source.responses, source.cost
        program.is_streamed = True
        inputs = [f"IN{number}" for number in range(source.inputs)]
        followers = [p for p in self._callees(3) if p.kind == "model" and p.inputs == 1]
        if followers and self._happens(0.7):
            follower = self._chance.choice(followers)
            between = ["T0", *[""] * (source.outputs - 1)]
            outputs = [f"OUT{number}" for number in range(follower.outputs)]
            program.members = [(source.name, inputs, between), (follower.name, ["T0"], outputs)]
            program.outputs = follower.outputs
            program.cost += follower.cost * source.responses
        else:
            outputs = [f"OUT{number}" for number in range(source.outputs)]
            program.members = [(source.name, inputs, outputs)]
            program.outputs = source.outputs
        self.programs.append(program)


class _Steps:
    """The steps of one model."""

    def __init__(
        self, chance: random.Random, program: Program, *, keeps: bool, passes: bool
    ) -> None:
        """Set up; a model that keeps holds arrays, one that passes sends its inputs themselves."""
        self._chance = chance
        self._program = program
        self._keeps = keeps
        self._passes = passes
        self._names = [f"i{number}" for number in range(program.inputs)]
        #: Names of arrays that must not be written to, since they are in Tensor.empty.
        self._filled: set[str] = set()
        self._count = 0

    def draw(self, count: int, calls: list[tuple[str, list[Program]]]) -> None:
        """Draw so many steps of computation, these calls among them, and the responses."""
        chance, program = self._chance, self._program
        actions: list[Any] = ["compute"] * count + [call for call in calls if call[1]]
        chance.shuffle(actions)
        program.outputs = chance.choice((1, 1, 2, 3))
        program.responses = chance.choice((1, 2, 3, 4)) if program.is_streamed else 1
        sends = program.responses - 1
        for action in actions:
            if program.is_streamed and chance.random() < 0.25:
                self._add("pause", chance.choice((2, 10)))
            if action == "compute":
                self._compute()
            else:
                self._call(*action)
            if sends and chance.random() < 0.5:
                self._send()
                sends -= 1
        for number in range(sends + 1):
            if number and chance.random() < 0.3:
                self._add("pause", chance.choice((2, 10)))
            self._send()

    def draw_sequence(self) -> None:
        """Draw steps between arrays of the state's length, and the state after them."""
        chance, program = self._chance, self._program
        self._names.append("s")
        for _ in range(chance.randint(0, 3)):
            kind, source, to = chance.choice(("add", "copy", "dlpack")), self._pick(), self._new()
            self._add(kind, to, source, *([self._pick()] if kind == "add" else []))
            self._names.append(to)
            if self._keeps and chance.random() < 0.5:
                self._add("keep", to, chance.choice(_PLACES))
        program.outputs = chance.choice((1, 2))
        self._add("state", chance.choice(self._names))
        self._send()

    def _new(self) -> str:
        self._count += 1
        return f"r{self._count}"

    def _pick(self) -> str:
        """Choose an array, often the newest."""
        names = self._names
        return names[-1] if self._chance.random() < 0.5 else self._chance.choice(names)

    def _add(self, *step: Any) -> None:
        self._program.steps.append(list(step))

    def _compute(self) -> None:
        chance = self._chance
        kinds = ("slice", "slice", "turn", "copy", "add", "mark", "mark", "dlpack", "empty")
        kind, source = chance.choice(kinds), self._pick()
        if kind == "mark":
            if source not in self._filled:
                self._add("mark", source, chance.randrange(1, 256))
            return
        to = self._new()
        if kind == "slice":
            begin = chance.choice((0, 0, 1, 4, 8))
            end = chance.choice((16, 16, 15, 12))
            self._add("slice", to, source, begin, end, chance.choice((1, 1, 1, 1, 2, -1)))
        elif kind == "turn":
            self._add("turn", to, source, chance.choice((2, 3, 8)))
        elif kind == "add":
            self._add("add", to, source, self._pick())
        else:
            self._add(kind, to, source)
        # a view of memory that must not be written to is such memory
        if kind == "empty" or (source in self._filled and kind in ("slice", "dlpack")):
            self._filled.add(to)
        self._names.append(to)
        if self._keeps and chance.random() < 0.25:
            self._add("keep", to, chance.choice(_PLACES))

    def _call(self, mode: str, callees: list[Program]) -> None:
        chance = self._chance
        count = sum(callee.responses * callee.outputs for callee in callees)
        names = [self._new() for _ in range(count)]
        shared = self._pick()
        calls = []
        for callee in callees:
            sources = [
                shared if chance.random() < 0.7 else self._pick() for _ in range(callee.inputs)
            ]
            calls.append([f"{callee.name}:{callee.outputs}", sources])
        self._add("call", names, mode, calls)
        self._names += names
        for name in names:
            if self._keeps and chance.random() < 0.6:
                self._add("keep", name, chance.choice(_PLACES))

    def _send(self) -> None:
        outputs = [self._pick() for _ in range(self._program.outputs)]
        if not self._passes:
            for source in [*outputs]:
                to = self._new()
                self._add("copy", to, source)
                outputs = [*outputs[1:], to]
        if self._keeps and self._chance.random() < 0.3:
            self._add("keep", self._chance.choice(self._names), self._chance.choice(_PLACES))
        self._add("send", outputs)


def draw(seed: str, features: Sequence[str], models: int) -> list[Program]:
    """Return the programs of a seed, callees before their callers."""
    chance = random.Random(seed)
    drawing = _Drawing(chance, features)
    drawing.add_all(models)
    for program in drawing.programs:
        program.has_route = (
            program.can_have_copies and "routes" in features and chance.random() < 0.2
        )
    return drawing.programs
