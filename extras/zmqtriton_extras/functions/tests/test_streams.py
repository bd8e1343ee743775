"""Streams of one model without threads, in all orders, and their loop in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.waiting import eventually
from zmqtriton_extras.functions.backend import streams
from zmqtriton_extras.functions.backend.api import model
from zmqtriton_extras.functions.tests.stream_orders import World, explore
from zmqtriton_extras.functions.tests.test_functions import loaded
from zmqtriton_floor.descriptions import described
from zmqtriton_floor.errors import ZmqTritonError

# ---------------------------------------------------------------- all orders


@pytest.mark.slow
def test_each_stream_ends_once_in_all_orders() -> None:
    assert 1000 < explore(2, 2, 1)


@pytest.mark.long("extras/functions/test_streams.py::test_each_stream_ends_once_in_all_orders")
def test_each_of_more_streams_ends_once_in_all_orders() -> None:
    assert 10_000 < explore(1, 2, 2, 4)


def texts(world: World, number: int) -> list[str]:
    return [
        response if isinstance(response, str) else response.error().message()
        for response in world.requests[number].sender.sent
    ]


def test_a_request_waits_for_room_and_none_overtakes_it() -> None:
    world = World((2, 2, 1))
    for _ in range(3):
        world.do(("arrives",))
    world.do(("step", "piece", "piece"))
    assert ([0], True) == (world.states, world.streams.is_full)

    world.do(("step", "last", "piece"))
    world.do(("step", "piece", "piece"))

    assert ([1, 2], ["piece", "piece"]) == (world.states, texts(world, 0))


def test_a_request_that_fits_into_no_room_is_refused() -> None:
    world = World((4,))
    world.do(("arrives",))
    world.do(("step", "piece", "piece"))

    assert ["its cost is 4, and the budget 3"] == texts(world, 0)


def test_an_error_that_names_a_stream_ends_that_alone() -> None:
    world = World((1, 1))
    for _ in range(2):
        world.do(("arrives",))
    world.do(("step fails one", 1))
    world.do(("step", "piece", "piece"))

    assert ([0], ["piece"], ["failed"]) == (world.states, texts(world, 0), texts(world, 1))


@pytest.mark.parametrize("results", [[], ["a", "b"], None, "a"])
def test_a_step_with_another_number_of_results_ends_all(results: Any) -> None:
    world = World((1,))
    world.do(("arrives",))
    world.results = results
    world.streams.step(world.streams.begin())

    expected = f"TypeError: step must return a list of 1 results, got {described(results)}"
    assert [expected] == texts(world, 0)
    assert [0] == world.left


# ------------------------------------------------------------------ the loop


class Args(dict[str, str]):
    """The arguments of `initialize` that the loop reads."""

    def __init__(self) -> None:
        super().__init__(model_name="m", model_version="1")


def test_execute_waits_while_a_request_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_FULL_S", 600.0)
    world = World((2, 2, 1))
    world.results = ["piece"]
    loop = streams.StreamLoop(streams.Work(world, 4, 3), Args())
    first, second, third = world.requests
    done = threading.Event()

    def execute() -> None:
        loop.put([third])
        done.set()  # until then a fourth is in the server's queue

    for request in (first, second):
        loop.put([request])
    eventually(lambda: loop._streams.is_full, 60, "the second waits for room")
    thread = threading.Thread(target=execute)
    thread.start()
    count = len(first.sender.sent)
    eventually(lambda: len(first.sender.sent) > count + 20, 60, "steps")
    is_waiting = not done.is_set() and not third.sender.sent
    world.results = ["piece", "piece"]
    first.sender.is_gone = True  # it leaves
    eventually(done.is_set, 60, "execute() has returned")
    eventually(lambda: third.sender.sent, 60, "the third is there")
    thread.join()
    loop.close()

    assert is_waiting
    assert [1, 1, 1] == [request.sender.ends for request in world.requests]
    assert [0, 1, 2] == sorted(world.left)


def test_a_loop_that_is_closed_ends_its_streams_and_those_that_wait() -> None:
    world = World((2, 2))
    world.results = [None]
    loop = streams.StreamLoop(streams.Work(world, 4, 3), Args())
    loop.put(world.requests)
    eventually(lambda: world.states == [0], 60, "a step")
    loop.close()

    assert ["the instance of the model has ended"] * 2 == [*texts(world, 0), *texts(world, 1)]
    assert [0] == world.left


def test_a_stream_whose_pieces_may_be_lost_does_not_wait_for_its_reader() -> None:
    world = World((1, 1))
    for _ in range(2):
        world.do(("arrives",))
    world.do(("step", "piece", "piece"))
    for request in world.requests:
        request.sender.is_slow = True
    world.requests[0].sender.has_doubts = True

    world.do(("step", "piece", "piece"))

    assert (2, 1) == (world.streams.behind, world.streams.slow)


def test_a_loop_without_streams_takes_no_steps_and_waits_for_readers() -> None:
    world = World((1,))
    world.results = ["piece"]
    loop = streams.StreamLoop(streams.Work(world, 4, 3), Args())
    [request] = world.requests
    request.sender.is_slow = True
    loop.put([request])
    eventually(lambda: world.admitted, 60, "it is admitted")
    assert [] == request.sender.sent

    request.sender.is_slow = False
    eventually(lambda: request.sender.sent, 60, "it reads")
    loop.close()


COUNT = """
from typing import List, Optional
from zmqtriton import End, Failed, Full, Refused, model

steps = []

@model(streams=2, budget=10)
class Caption:
    '''Counts down.'''
    def cost(self, text: str, times: int) -> float:
        return {"nan": float("nan"), "infinite": float("inf")}.get(text, times)

    def admit(self, text: str, times: int = 2) -> dict:
        if text == "refused":
            raise Refused("not this text")
        if text == "never":
            raise Full
        return {"text": text, "left": times}

    def step(self, states: list) -> List[Optional[str]]:
        steps.append([state["text"] for state in states])
        return [self.next(state, place) for place, state in enumerate(states)]

    def next(self, state, place):
        state["left"] -= 1
        if state["text"] == "one":
            return Failed(place, "this one")
        if state["text"] == "all":
            raise ValueError("all of them")
        if state["text"] == "exit":
            raise SystemExit
        if state["text"] == "wrong":
            return 5
        text = f"{state['text']}{state['left']}"
        return text if state["left"] else End(text)

    def leave(self, state: dict) -> None:
        if state["text"] == "left":
            raise ValueError("it cannot leave")
"""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with loaded(tmp_path_factory.mktemp("streams"), COUNT) as model:
        yield model


def ask(model: Any, text: str, times: int = 2) -> list[str]:
    answers = model.stream(text=np.array([text], object), times=np.array([times]))
    return [answer["output"][0].decode() for answer in answers]


def error_of(model: Any, text: str, times: int = 2) -> str:
    with pytest.raises(ZmqTritonError) as caught:
        ask(model, text, times)
    return caught.value.text


def test_hints_of_admit_and_step_are_the_configuration(counting: Any) -> None:
    config = counting.config
    assert ["text", "times"] == [each["name"] for each in config["input"]]
    assert ["TYPE_STRING"] == [each["data_type"] for each in config["output"]]
    assert config["model_transaction_policy"]["decoupled"]
    assert "2" == config["parameters"]["MAX_STREAMS"]["string_value"]


def test_requests_at_the_same_time_share_steps(counting: Any) -> None:
    requests = [{"text": np.array([str(n)], object), "times": np.array([5])} for n in range(5)]
    responses = counting.execute_streams(requests)

    texts = [
        [row.outputs["output"][0].decode() for row in rows if row.outputs] for rows in responses
    ]
    assert [[f"{n}{left}" for left in (4, 3, 2, 1, 0)] for n in range(5)] == texts


ERRORS = {
    "refused": "not this text",
    "never": "the model has no room for this request, even without other streams",
    "one": "this one",
    "all": "ValueError: all of them",
    "exit": "SystemExit: ",
    "wrong": "output 'output': expected str, got an integer",
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_reach_their_requests_and_the_model_goes_on(counting: Any, text: str) -> None:
    assert ERRORS[text] in error_of(counting, text)
    assert ["a0"] == ask(counting, "a", 1)


@pytest.mark.parametrize(("text", "times"), [("nan", 1), ("infinite", 1), ("a", -1000)])
def test_units_that_are_no_number_from_0_on_take_no_limit_away(
    counting: Any, text: str, times: int
) -> None:
    assert "which must be a number from 0 on" in error_of(counting, text, times)
    assert "its cost is 11, and the budget 10" == error_of(counting, "a", 11)
    assert ["a0"] == ask(counting, "a", 1)


def test_a_request_that_needs_more_than_the_room_is_refused(counting: Any) -> None:
    assert "its cost is 11, and the budget 10" == error_of(counting, "a", 11)


def test_units_are_counted_with_the_defaults_of_admit(counting: Any) -> None:
    answers = counting.stream(text=np.array(["a"], object))
    assert ["a1", "a0"] == [answer["output"][0].decode() for answer in answers]


def test_a_leave_that_fails_harms_nothing(counting: Any) -> None:
    assert ["left1", "left0"] == ask(counting, "left", 2)
    assert ["a0"] == ask(counting, "a", 1)


def test_arguments_are_checked_before_they_are_admitted(counting: Any) -> None:
    with pytest.raises(ZmqTritonError, match="text: expected"):
        list(counting.stream(text=np.array([b"\xff"], object)))


WRONG = {
    "class M:\n    def step(self, states: list) -> list: ...": "M has no admit",
    "class M:\n    def admit(self, a: str): ...": "M has no step",
    "def m(a: str) -> str: ...": "m has no admit",
    "class M:\n    def admit(self, a: str): ...\n    def step(self, s) -> str: ...": (
        "step needs a return hint such as -> list[str | None]"
    ),
    "class M:\n    def admit(self, a: str): ...\n    async def step(self, s) -> list[str]: ...": (
        "step of M must be a plain function"
    ),
}


@pytest.mark.parametrize("source", WRONG)
def test_a_class_without_its_methods_says_what_it_lacks(tmp_path: Path, source: str) -> None:
    whole = f"from zmqtriton import model\n\n@model(streams=2)\n{source}\n"
    with (
        pytest.raises(Exception, match=re.escape(WRONG[source])),
        loaded(tmp_path, whole, name="m"),
    ):
        pass


@pytest.mark.parametrize(
    "arguments",
    [{"streams": -1}, {"streams": 2, "batch": 2}, {"streams": 2, "budget": -1}],
)
def test_streams_have_no_batch_and_a_budget_of_0_or_more(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="streams must be 1 or more"):
        model(**arguments)


PLAIN = """
import numpy as np
import triton_python_backend_utils as pb_utils
from zmqtriton import End, Full


class TritonPythonModel:
    budget = 4

    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "N", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "LEFT", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def initialize(self, args):
        self.is_initialized = args["model_name"] == "plain"

    def cost(self, request):
        return self.number(request)

    def admit(self, request):
        assert self.is_initialized
        return [self.number(request)]

    def number(self, request):
        return int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])

    def step(self, states):
        for state in states:
            state[0] -= 1
        return [self.result(left) for [left] in states]

    def result(self, left):
        if left < 0:
            return End()
        if left % 2:
            return None
        return pb_utils.InferenceResponse([pb_utils.Tensor("LEFT", np.array([left], np.int32))])
"""


def test_a_class_with_pb_utils_has_the_same_loop(tmp_path: Path) -> None:
    with loaded(tmp_path, PLAIN, 'backend: "streams"', "plain") as model:
        answers = [list(model.stream(N=np.array([n], np.int32))) for n in (4, 3)]
        with pytest.raises(ZmqTritonError, match="its cost is 5, and the budget 4"):
            list(model.stream(N=np.array([5], np.int32)))
        assert "64" == model.config["parameters"]["MAX_STREAMS"]["string_value"]

    assert [[2, 0], [2, 0]] == [[int(row["LEFT"][0]) for row in rows] for rows in answers]


def test_such_a_class_must_have_its_methods(tmp_path: Path) -> None:
    source = "class TritonPythonModel:\n    def admit(self, request): ...\n"
    with (
        pytest.raises(Exception, match="no class TritonPythonModel with the method step"),
        loaded(tmp_path, source, 'backend: "streams"', "plain"),
    ):
        pass
