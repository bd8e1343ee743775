"""Models and clients that keep, return and pass on tensors, in steps that `explore` orders.

A program is a generator: each `yield` ends a step, and what it yields says when the next one can be
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tests.broker.lifetimes.processes import FrontendProcess, Steps, StubProcess, World, content

Program = Callable[[StubProcess, Any], Steps]


def passes_on(stub: StubProcess, request: Any) -> Steps:
    """Return the input as the output."""
    stub.answer(request, stub.input(request))
    return
    yield


def copies(stub: StubProcess, request: Any) -> Steps:
    """Return a copy of the input."""
    array = stub.input(request)
    stub.answer(request, None if array is None else array.copy())
    return
    yield


def asks_and_keeps(target: str) -> Program:
    """Call a model with an array of its own, and keep what it returns over its own answer."""

    def program(stub: StubProcess, request: Any) -> Steps:
        stub.made = seed = getattr(stub, "made", 100) + 1  # type: ignore[attr-defined]
        call = stub.ask(target, content(seed))
        yield call.has_reply
        array = call.take()
        if array is not None:
            stub.keep(array, seed)
        del array, call
        stub.answer(request, None)
        yield None

    return program


def asks_with_input(target: str, *, awaits: bool, returns: bool = False) -> Program:
    """Call a model with its own input, and answer with what that returns, or before it does.

    In the latter case it may return its input.
    """

    def program(stub: StubProcess, request: Any) -> Steps:
        call = stub.ask(target, stub.input(request))
        if not awaits:
            yield None
            stub.answer(request, stub.input(request) if returns else None)
        yield call.has_reply
        array = call.take()
        if awaits:
            stub.answer(request, array)
        elif array is not None:
            kept = stub.keep(array, int(array.flat[0]))
            yield None
            stub.drop(kept)

    return program


def keeps_and_passes_on(*targets: str) -> Program:
    """Keep what a model returns, give it on to others, and return it in the end."""

    def program(stub: StubProcess, request: Any) -> Steps:
        stub.made = seed = getattr(stub, "made", 200) + 1  # type: ignore[attr-defined]
        call = stub.ask(targets[0], content(seed))
        yield call.has_reply
        array = call.take()
        if array is None:
            stub.answer(request, None)
            return
        kept = stub.keep(array, seed)
        calls = [stub.ask(target, array) for target in targets[1:]]
        for call in calls:
            yield call.has_reply
            other = call.take()
            if other is not None:
                stub.keep(other, seed)
            del other
        stub.answer(request, array)
        del array
        yield None
        stub.drop(kept)

    return program


def keeps_input(stub: StubProcess, request: Any) -> Steps:
    """Keep the input over the answer."""
    array = stub.input(request)
    stub.keep(array, int(array.flat[0]))
    del array
    stub.answer(request, None)
    return
    yield


def client(model: str, seed: int = 0, *, times: int = 1) -> Any:
    """Return a client that calls a model, with a large input if it has a seed."""

    def program(frontend: FrontendProcess) -> Steps:
        for number in range(times):
            array = content(seed + number) if seed else None
            own_id = frontend.ask(model, array)
            del array
            yield partial(frontend.replies.__contains__, own_id)
            answer, _, _ = frontend.replies.pop(own_id)[-1]
            if answer is not None and answer.size > 1:
                kept = frontend.keep(answer, seed + number if seed else int(answer.flat[0]))
                del answer
                yield None
                frontend.drop(kept)
                yield None

    return program


def keeper(model: str, seed: int, *, times: int = 1) -> Any:
    """Return a client that calls a model with large inputs, and keeps all answers."""

    def program(frontend: FrontendProcess) -> Steps:
        for number in range(seed, seed + times):
            own_id = frontend.ask(model, content(number))
            yield partial(frontend.replies.__contains__, own_id)
            answer, _, _ = frontend.replies.pop(own_id)[-1]
            if answer is not None:
                frontend.keep(answer, number)
            del answer

    return program


class Scenario:
    """The models, ensembles and clients of a world."""

    def __init__(
        self,
        models: dict[str, Program],
        clients: list[Any],
        ensembles: dict[str, Any] | None = None,
        *,
        guest: Iterable[Any] = (),
        eager: Iterable[str] = (),
    ) -> None:
        """`guest` has the clients in a program that takes part."""
        self.models = models
        self.clients = clients
        self.ensembles = ensembles or {}
        self.guest = [*guest]
        self.eager = eager

    def __call__(self) -> World:
        world = World(self.models, self.ensembles, has_guest=bool(self.guest))
        world.eager = {world.process(name).serial for name in self.eager}
        for name, programs in (("frontend", self.clients), ("guest", self.guest)):
            for program in programs:
                client: Any = world.process(name)
                client.start(program(client))
        return world


SCENARIOS: dict[str, Scenario] = {
    "a model keeps what another one has returned of its own": Scenario(
        {"asker": asks_and_keeps("echo"), "echo": passes_on},
        [client("asker", times=2)],
        eager=["frontend"],
    ),
    "an ensemble of one step that returns its input": Scenario(
        {"echo": passes_on},
        [client("one", 11, times=2)],
        {"one": [("echo", "I", "O")]},
    ),
    "an ensemble of two steps that return their inputs": Scenario(
        {"echo": passes_on},
        [client("chain", 11), client("chain", 21)],
        {"chain": [("echo", "I", "t"), ("echo", "t", "O")]},
    ),
    "an ensemble whose steps return one tensor three times": Scenario(
        {"echo": passes_on, "copy": copies},
        [client("fan", 11), client("fan", 21)],
        {"fan": [("copy", "I", "t"), ("echo", "t", "u"), ("echo", "t", "O")]},
    ),
    "an ensemble within an ensemble": Scenario(
        {"echo": passes_on},
        [client("outer", 11), client("outer", 21)],
        {
            "inner": [("echo", "I", "O")],
            "outer": [("inner", "I", "t"), ("inner", "t", "O")],
        },
    ),
    "a model that gives what it keeps to two others, and returns it": Scenario(
        {"asker": keeps_and_passes_on("copy", "echo", "copy"), "echo": passes_on, "copy": copies},
        [client("asker"), client("asker")],
    ),
    "a model that gives its own block, come back, to others": Scenario(
        {"asker": keeps_and_passes_on("echo", "echo", "echo"), "echo": passes_on},
        [client("asker"), client("asker")],
    ),
    "a model that calls an ensemble and keeps the answer": Scenario(
        {"asker": asks_and_keeps("chain"), "echo": passes_on},
        [client("asker", times=2)],
        {"chain": [("echo", "I", "t"), ("echo", "t", "O")]},
    ),
    "a model that answers while another one reads its input": Scenario(
        {"asker": asks_with_input("echo", awaits=False), "echo": copies},
        [client("asker", 11), client("asker", 21)],
    ),
    "a model that returns what another one has returned of its input": Scenario(
        {"asker": asks_with_input("echo", awaits=True), "echo": passes_on},
        [client("asker", 11), client("asker", 21)],
    ),
    "a model that keeps its input": Scenario(
        {"keeper": keeps_input}, [client("keeper", 11), client("keeper", 21)]
    ),
    "a program keeps answers while others ask": Scenario(
        {"copy": copies},
        [client("copy", 11, times=2)],
        guest=[keeper("copy", 31, times=2)],
    ),
    "a program keeps what a model keeps, and its own input": Scenario(
        {"asker": keeps_and_passes_on("echo", "echo"), "echo": passes_on},
        [client("asker"), client("echo", 11)],
        guest=[keeper("echo", 31)],
    ),
    "an input of a third process that is read after two answers": Scenario(
        {
            "asker": asks_and_keeps("relay"),
            "relay": asks_with_input("echo", awaits=False, returns=True),
            "echo": copies,
        },
        [client("asker", times=2)],
    ),
}

#: Scenarios of which all orders can be explored.
SMALL: dict[str, Scenario] = {
    "a program keeps an answer while another client asks": Scenario(
        {"copy": copies}, [client("copy", 11)], guest=[keeper("copy", 31)], eager=["frontend"]
    ),
    "a model keeps what another one has returned": Scenario(
        {"asker": asks_and_keeps("echo"), "echo": passes_on}, [client("asker")], eager=["frontend"]
    ),
    "a model answers while another one reads its input": Scenario(
        {"asker": asks_with_input("echo", awaits=False), "echo": copies},
        [client("asker", 11)],
        eager=["frontend"],
    ),
    "a model returns what another one has returned of its input": Scenario(
        {"asker": asks_with_input("echo", awaits=True), "echo": passes_on},
        [client("asker", 11)],
        eager=["frontend"],
    ),
    "an ensemble returns its input": Scenario(
        {"echo": passes_on},
        [client("chain", 11)],
        {"chain": [("echo", "I", "t"), ("echo", "t", "O")]},
    ),
}
