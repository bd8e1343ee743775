"""Calls of forks, and what is passed on for them."""

from __future__ import annotations

import json
import queue
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.stub.broker.test_bls_client import World
from tests.stub.fakes import FakeLink, body
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound, Unavailable
from zmqtriton_floor.metrics import GAUGE
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.forks.fork_client import ForkClient, ForkedBlsClient
from zmqtriton_stub.forks.relay import Calls, Relay

# ------------------------------------------------------------------------------- calls
# Calls of forks to their instance besides those of models: metrics, control, their senders.


FORK: Any = "the connection of a fork"


class Fork:
    def __init__(self) -> None:
        self.link = FakeLink()
        self.instance = self.link.instance
        self.answers: queue.SimpleQueue[wire.CallResult] = queue.SimpleQueue()
        self.calls = Calls(self.instance, lambda connection, answer: self.answers.put(answer))
        self.made: set[int] = set()

    def tell(self, verb: str, arguments: Any) -> None:
        """A call that is not answered."""
        self.calls.take(FORK, wire.Call(0, verb, json.dumps(arguments)), [], self.made)

    def ask(self, verb: str, arguments: Any, *bodies: bytes) -> wire.CallResult:
        self.calls.take(FORK, wire.Call(7, verb, json.dumps(arguments)), list(bodies), self.made)
        answer = self.answers.get(timeout=30)
        assert 7 == answer.id
        return answer

    def result(self, verb: str, arguments: Any, *bodies: bytes) -> Any:
        answer = self.ask(verb, arguments, *bodies)
        assert (0, "") == (answer.code, answer.text)
        return json.loads(answer.result)


@pytest.fixture
def fork() -> Fork:
    return Fork()


def test_a_metric_is_made_changed_read_and_let_go(fork: Fork) -> None:
    family = fork.result("family", ["f", "about", GAUGE])
    metric = fork.result("metric", [family, GAUGE, {"a": "b"}, []])
    assert {family, metric} == fork.made

    fork.tell("change", [metric, "set", 3.0])
    fork.tell("change", [metric, "add", 2.0])
    assert 5.0 == fork.result("value", metric)

    other = fork.result("metric", [family, GAUGE, {"a": "c"}, []])
    fork.tell("drop", metric)
    assert {family, other} == fork.made
    fork.result("value", other)  # sums up what has happened
    fork.tell("change", [metric, "set", 3.0])
    assert (NotFound.number, "the metric is gone") == fork.ask("value", metric)[1:3]


@pytest.mark.parametrize("verb", ["load", "unload", "ready"])
def test_models_are_controlled_as_by_the_instance(fork: Fork, verb: str) -> None:
    calls: list[tuple[str, str]] = []

    def call(verb: str, document: str) -> bool:
        calls.append((verb, document))
        return True

    fork.instance.call = call

    assert fork.result(verb, {"model": "other"}) is True

    assert [(verb, '{"model": "other"}')] == calls


def test_models_are_not_controlled_where_the_instance_may_not(fork: Fork) -> None:
    answer = fork.ask("load", {"model": "other"})

    assert Unavailable.number == answer.code
    assert "models are controlled from initialize()" in answer.text


def test_a_verb_that_nobody_knows_is_refused(fork: Fork) -> None:
    answer = fork.ask("dance", None)

    assert (InternalError.number, "a fork asks for dance") == (answer.code, answer.text)


def test_a_failure_is_answered_with_its_code(fork: Fork) -> None:
    fork.link.add_request(body(), own_id=5)

    number = InvalidArgument.number
    fork.result("send", [3, 5, wire.FINAL, ["no", number - 1, number]])

    assert [(InvalidArgument.number, "no")] == [(o.code, o.text) for o in fork.link.outcomes()]


def test_a_cancellation_is_told_as_long_as_the_request_is_there(fork: Fork) -> None:
    pending = fork.link.add_request(body(), own_id=5)
    assert fork.result("is_cancelled", [3, 5]) is False
    assert fork.result("is_cancelled", [3, 6]) is False

    pending.cancel()

    assert fork.result("is_cancelled", [3, 5]) is True


# ------------------------------------------------------------------------------- relay
# A fork's line to its instance, with both ends in the process of the test.


_BOOTSTRAP = wire.Bootstrap(7, b"0123456789abcdef", "stub", "", 1, encode(StubSettings()))


_ASKED = wire.Request(0, 0, "m", -1, 0, 0, 0, 0, 1, 0, 0)


class RelayedFork:
    def __init__(self) -> None:
        self.link = FakeLink()
        self.instance = self.link.instance
        self._relay = Relay(self.instance)
        self._relay.open_inlet()
        # what a fork would inherit
        [(_, end)] = self._relay._opening.values()
        self._inlet = end.dup()  # a fork inherits it
        self._relay.serve()
        self.line = ForkClient(self._inlet)

    def close(self) -> None:
        self._inlet.close()
        # a fork ends with its process
        if self.line._dealer is not None:
            self.line._dealer.close()
        eventually(lambda: not self._relay._is_running, 30, "nothing is served any more")


def test_a_fork_answers_a_request_and_only_once() -> None:
    with closing(RelayedFork()) as fork:
        fork.link.add_request(body(), own_id=5)

        fork.line.send((3, 5), pb_utils.InferenceResponse(), wire.FINAL)

        assert [(5, wire.FINAL)] == [(one.id, one.flags) for one in fork.link.outcomes()]
        with pytest.raises(pb_utils.TritonModelException, match="sender has been closed"):
            fork.line.send((3, 5), pb_utils.InferenceResponse(), wire.FINAL)


@pytest.mark.slow
def test_answers_beyond_what_the_socket_holds_reach_a_fork_when_it_reads() -> None:
    with closing(RelayedFork()) as fork, closing(fork.line.connect()) as dealer:
        called: list[str] = []

        def call(verb: str, document: str) -> str:
            called.append(verb)
            return "x" * 1_000_000

        fork.instance.call = call
        for number in range(20):
            dealer.put([wire.encode(wire.Call(number, "load", "{}"))])
        dealer.finish()
        eventually(lambda: len(called) == 20, 30, "all calls")

        def hear() -> int:
            eventually(dealer.has_input, 30, "an answer")
            return int(wire.decode(dealer.receive()[0]).id)

        assert {*range(20)} == {hear() for _ in range(20)}


def test_an_answer_to_a_fork_that_has_left_is_not_sent_to_one_with_its_descriptor() -> None:
    with closing(RelayedFork()) as fork:
        fork.instance.call = lambda verb, document: True
        fork.line.call("load", "{}")

        # which descriptor a fork's connection gets is the system's choice
        for descriptor in (-1, *fork._relay._forks):
            left: Any = SimpleNamespace(descriptor=descriptor)
            fork._relay._answer(left, wire.CallResult(1, InternalError.number, "of another", ""))

        assert fork.line.call("load", "{}") is True


@pytest.mark.parametrize("does_end", [False, True])
def test_calls_that_a_fork_cancels_or_leaves_at_its_end_are_cancelled(
    tmp_path: Path, does_end: bool
) -> None:
    with closing(World(tmp_path)) as world, closing(RelayedFork()) as fork:
        fork.instance.asker = world.asker
        memory: Any = world.memory
        with closing(ForkedBlsClient(_BOOTSTRAP, memory, fork.line)) as asker:
            question = asker.ask(_ASKED, wire.encode_body(wire.RequestBody("", {}, [], [])))
            [infer] = world.broker.hear_all(wire.Infer, 1)

            if does_end:
                asker.close()
            else:
                asker.cancel(question)

            [cancelled] = world.broker.hear_all(wire.Cancel, 1)
            assert [infer.requests[0].id] == cancelled.ids


def test_the_connection_of_its_parent_is_not_asked_for_anything(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as world:
        world.asker.abandon()

        refusal = world.asker.wait(world.ask())[0]

        assert Unavailable.number == refusal.code
        assert "a process that the model has forked" in refusal.text
