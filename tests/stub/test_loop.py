"""A stub's loop in a thread of the test's, which is its supervisor and its broker."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.stub.broker.test_bls_client import Broker
from tests.stub.fakes import body, fp32
from tests.stub.running import RunningStub
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, InvalidArgument, Unavailable
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.metrics import COUNTER
from zmqtriton_floor.settings.codec import encode
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.loop import Stub

_PATH = Path("/repository/m")


class Same:
    """A model that answers with its inputs, and tells what becomes of it."""

    events: list[str]

    def initialize(self, arguments: dict[str, str]) -> None:
        self.events.append("initialize")

    def execute(self, requests: Any) -> Any:
        self.events.append("execute")
        return [pb_utils.InferenceResponse(request.inputs()) for request in requests]

    def finalize(self) -> None:
        self.events.append("finalize")


class Surroundings:
    """The process of the test, where an instance is one thread among others."""

    maps_regions = has_own_memory = True
    predecessor = None
    measures = None

    def __init__(self, model_class: Any) -> None:
        self._class = model_class
        self.collected = 0
        self.is_settled = False
        self.reasons: list[str] = []

    def threads_beside(self, instance: str) -> Sequence[int]:
        return ()

    def adopt(self, instance: Any, bootstrap: Any, memory: Any) -> None:
        self.instance = instance

    def imported_modules(self) -> str:
        return ""

    def has_loaded(self, instance: Any, model: Any) -> None:
        pass

    def see_own_gpu(self, load: wire.LoadModel) -> wire.LoadModel:
        return load

    def model_class(self, load: wire.LoadModel, instance: Any) -> Any:
        return self._class

    def settle(self) -> None:
        self.is_settled = True

    def collect(self) -> None:
        self.collected += 1

    def lose_supervisor(self, finalize: Callable[[], None]) -> None:
        finalize()

    def give_up(self, reason: str) -> NoReturn:
        self.reasons.append(reason)
        raise SystemExit(reason)


class HostedStub(RunningStub):
    """Said and awaited one by one, as with a process."""

    def __init__(self, directory: Path, model_class: Any = Same, **config: Any) -> None:
        end, page, listener = self._take_places(directory, 1)
        os.close(page)
        self.events: list[str] = []
        self.config = {"name": "m", **config}
        self.senders: list[Any] = []
        own = {"events": self.events, "senders": self.senders}
        self.surroundings = Surroundings(type("TritonPythonModel", (model_class,), own))
        self.status: int | None = None
        around: Any = self.surroundings
        make = partial(Stub, Lifeline(end), self.progress, listener, around)
        self.thread = threading.Thread(target=self._run, args=[make])
        self.thread.start()

    def _run(self, make: Callable[[], Stub]) -> None:
        stub = make()
        try:
            self.status = stub.run()
        except SystemExit:
            self.status = 1
        finally:
            stub.close()

    def __enter__(self) -> HostedStub:
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread.is_alive():
            self.lifeline.close()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.lifeline.close()
        self.progress.close()
        self._router.close()

    def begin(self) -> HostedStub:
        """Up to ModelLoaded."""
        self.start(_PATH, self.config)
        return self

    def load_and_initialize(self) -> None:
        """Up to its hello, or the failure of the load."""
        self.load(_PATH, self.config)
        self.send_message(wire.Initialize(json.dumps(self.config)))

    def finish(self) -> int:
        self.send_message(wire.Finalize())
        self.thread.join(60)
        assert self.status is not None
        return self.status

    def receive_growth(self) -> float:
        """Return how much the next message adds to counters, which may say something else."""
        message = wire.decode(self._receive()[0])
        rows = json.loads(message.arguments) if type(message) is wire.Call else []
        return float(sum(row[2] for row in rows if row[0] == "add"))

    def sync(self, number: int = 5) -> None:
        """Wait until the stub has heard everything that was said before."""
        self.send_message(wire.Sync(number))
        assert wire.Synced(number) == self.receive_message(wire.Synced)


@contextmanager
def serving(directory: Path, model_class: Any = Same, **config: Any) -> Iterator[HostedStub]:
    """A stub with a loaded model, which ends in order."""
    with HostedStub(directory, model_class, **config) as stub:
        yield stub.begin()

        assert 0 == stub.finish()


@pytest.fixture(autouse=True)
def _log_options() -> Iterator[None]:
    before = this_process.log_options

    yield

    this_process.log_options = before


def test_a_model_lives_from_its_initialize_to_its_finalize(tmp_path: Path) -> None:
    with serving(tmp_path) as stub:
        assert stub.surroundings.is_settled
        assert [fp32("A")] == stub.answer_to(fp32("A")).outputs

    assert ["initialize", "execute", "finalize"] == stub.events


def test_who_is_finished_before_its_model_is_there_finalizes_nothing(tmp_path: Path) -> None:
    with HostedStub(tmp_path) as stub:
        stub.load(_PATH, stub.config)

        assert 0 == stub.finish()

    assert [] == stub.events


def test_a_finalize_that_raises_is_logged_and_the_end_is_in_order(tmp_path: Path) -> None:
    class Failing(Same):
        def finalize(self) -> None:
            raise RuntimeError("too late")

    with HostedStub(tmp_path, Failing) as stub:
        stub.begin()

        assert 0 == stub.finish()

        line = stub.receive_message(wire.LogLine)
        assert "I" == line.level
        assert "RuntimeError: too late" in line.text


@pytest.mark.parametrize("lines", [0, 100])
def test_a_model_that_fails_to_load_says_why_also_behind_what_is_not_read_yet(
    tmp_path: Path, lines: int
) -> None:
    class Failing(Same):
        def initialize(self, arguments: dict[str, str]) -> None:
            for _ in range(lines):
                stub.surroundings.instance.log("I", "x" * 60_000)
            has_failed.set()
            raise RuntimeError("no weights")

    has_failed = threading.Event()
    with HostedStub(tmp_path, Failing) as stub:
        stub.load_and_initialize()
        assert has_failed.wait(60)

        reason = stub.receive_message(wire.LoadFailed).reason
        assert "RuntimeError: no weights" in reason.text
        raised = ("EXCEPTION", "RuntimeError", "no weights", "initialize")
        values = [reason.values[name] for name in ("exception", "message", "function")]
        assert raised == (reason.kind, *values)
        stub.thread.join(60)

    assert 1 == stub.status


@pytest.mark.row("E44")
def test_a_sample_that_fails_fails_the_load_with_its_code(tmp_path: Path) -> None:
    class Cold(Same):
        def execute(self, requests: Any) -> Any:
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("cold"))]

    samples = [{"name": "s", "batch_size": 1, "inputs": {}}]
    with HostedStub(tmp_path, Cold, model_warmup=samples) as stub:
        stub.load_and_initialize()
        stub.welcome_stub()

        failure = stub.receive_message(wire.LoadFailed)

        assert InvalidArgument.number == failure.code
        assert "failed to run warmup sample 's': cold; " == failure.reason.text
        stub.thread.join(60)
    assert 1 == stub.status


@pytest.mark.parametrize("auto_complete", [0, 1])
def test_the_model_completes_its_configuration_where_it_is_asked_to(
    tmp_path: Path, auto_complete: int
) -> None:
    class Completing(Same):
        @staticmethod
        def auto_complete_config(config: Any) -> Any:
            config.set_max_batch_size(8)
            return config

    with HostedStub(tmp_path, Completing) as stub:
        completed = stub.load(_PATH, stub.config, auto_complete)

        assert (8 if auto_complete else None) == completed.get("max_batch_size")
        assert 0 == stub.finish()


def test_the_supervisor_is_answered_and_changes_the_log(tmp_path: Path) -> None:
    with serving(tmp_path) as stub:
        stub.send_message(wire.LogSettings(encode(LogOptions(verbose=3))))
        stub.sync()

        assert 3 == this_process.log_options.verbose


def test_the_end_of_the_supervisor_is_the_end_of_the_stub(tmp_path: Path) -> None:
    with HostedStub(tmp_path) as stub:
        stub.begin()

        stub.lifeline.close()
        stub.thread.join(60)

        assert 0 == stub.status
    assert ["initialize", "finalize"] == stub.events


class Resting(Same):
    """A model that sleeps."""

    def sleep(self) -> None:
        self.events.append("sleep")

    def wake_up(self) -> None:
        self.events.append("wake_up")


class Keeping(Resting):
    """A model that answers later."""

    senders: list[Any]

    def execute(self, requests: Any) -> None:
        self.senders.extend(request.get_response_sender() for request in requests)


def rest(stub: HostedStub, verb: str) -> wire.CallResult:
    stub.send_message(wire.Call(9, verb, "{}"))
    answer: wire.CallResult = stub.receive_message(wire.CallResult)
    assert 9 == answer.id
    return answer


def give_room(stub: HostedStub, code: int = 0, text: str = "") -> None:
    """Answer a model that is about to wake up."""
    question: wire.Call = stub.receive_message(wire.Call)
    assert ("room", {"model": "m"}) == (question.verb, json.loads(question.arguments))
    stub.send_message(wire.CallResult(question.id, code, text, "true"))


def test_a_model_sleeps_when_it_is_told_and_wakes_up_for_a_request(tmp_path: Path) -> None:
    with serving(tmp_path, Resting) as stub:
        for verb in ("wake", "sleep", "sleep"):
            assert (0, "") == rest(stub, verb)[1:3]
        stub.send_batches([body(fp32("A"))])
        give_room(stub)
        assert 0 == stub.receive_results()[0].outcomes[0].code
        assert isinstance(stub.infer(fp32("A")), wire.ResponseBody)
        assert (0, "") == rest(stub, "sleep")[1:3]
        stub.send_message(wire.Call(9, "wake", "{}"))
        give_room(stub)
        assert 0 == stub.receive_message(wire.CallResult).code
    slept = ["sleep", "wake_up", "execute", "execute", "sleep", "wake_up"]
    assert ["initialize", *slept, "finalize"] == stub.events
    assert stub.surroundings.collected, "what it let go of is free"


def test_a_model_for_which_there_is_no_room_tells_its_requests_and_sleeps_on(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, Resting) as stub:
        rest(stub, "sleep")

        stub.send_batches([body(fp32("A")), body()])
        give_room(stub, Unavailable.number, "models take all of it")
        outcomes = stub.receive_results()[0].outcomes
        assert [(Unavailable.number, "models take all of it")] * 2 == [o[2:4] for o in outcomes]
        stub.send_message(wire.Call(9, "wake", "{}"))
        give_room(stub, Unavailable.number, "models take all of it")
        refused: wire.CallResult = stub.receive_message(wire.CallResult)
        assert (Unavailable.number, "models take all of it") == refused[1:3]
    assert ["initialize", "sleep", "finalize"] == stub.events


def test_a_model_without_both_words_is_not_put_to_sleep(tmp_path: Path) -> None:
    class Sleepless(Same):
        def sleep(self) -> None:
            self.events.append("sleep")

    with serving(tmp_path, Sleepless) as stub:
        answer = rest(stub, "sleep")

        assert InternalError.number == answer.code
        assert "its TritonPythonModel needs a method wake_up()" in answer.text
    assert "sleep" not in stub.events


def test_a_model_that_still_owes_an_answer_does_not_sleep(tmp_path: Path) -> None:
    with serving(tmp_path, Keeping, model_transaction_policy={"decoupled": True}) as stub:
        stub.send_batches([body()])
        stub.receive_results()

        assert (Unavailable.number, "it has requests") == rest(stub, "sleep")[1:3]
        stub.senders.pop().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        stub.receive_results()
        assert (0, "") == rest(stub, "sleep")[1:3]


def test_a_broker_that_ends_before_its_welcome_is_greeted_again(tmp_path: Path) -> None:
    with HostedStub(tmp_path) as stub:
        stub.load_and_initialize()
        stub.replace_broker()
        stub.welcome_stub()

        stub.receive_message(wire.ModelLoaded)
        assert 0 == stub.finish()


@pytest.mark.parametrize("moves", [1, 3])
def test_a_broker_that_dies_while_the_model_loads_is_no_failure_to_load(
    tmp_path: Path, moves: int
) -> None:
    with HostedStub(tmp_path) as stub:
        completed = stub.load(_PATH, stub.config)
        for epoch in range(2, 2 + moves):
            stub.move_broker(epoch)

        stub.initialize(completed)

        assert [fp32("X")] == stub.answer_to(fp32("X")).outputs
        assert 0 == stub.finish()


def test_what_will_be_answered_later_is_told_to_the_next_broker_and_answered(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, Keeping) as stub:
        [kept] = stub.send_batches([body()])
        stub.receive_results()

        stub.move_broker(epoch=2)
        hello = stub.welcome_stub()
        stub.senders.pop().send(pb_utils.InferenceResponse(parameters={"n": 1}), wire.FINAL)
        results, bodies = stub.receive_results()

        assert ([wire.RequestKey(3, kept)], []) == (hello.received, hello.unconfirmed)
        assert [kept] == [outcome.id for outcome in results.outcomes]
        assert [{"n": 1}] == [wire.decode_response(each).parameters for each in bodies]


def test_a_batch_of_a_broker_that_is_replaced_is_not_executed(tmp_path: Path) -> None:
    class Slow(Same):
        def execute(self, requests: Any) -> Any:
            assert may_go_on.wait(60)
            return super().execute(requests)

    may_go_on = threading.Event()
    with serving(tmp_path, Slow) as stub:
        stub.send_batches([body()], batch=1)
        eventually(lambda: stub.progress.last_begun_batch > 0, 30)
        stub.send_batches([body()], batch=2)
        stub.progress.fence(2)
        stub.move_broker(epoch=2)
        may_go_on.set()

        assert [1] == [outcome.id for outcome in stub.welcome_stub().unconfirmed]
        stub.sync()
    assert 1 == stub.events.count("execute")


def test_a_fence_while_the_broker_lives_is_what_the_model_has_written(tmp_path: Path) -> None:
    with HostedStub(tmp_path) as stub:
        stub.begin()
        stub.progress.fence(2)

        stub.send_batches([body()], batch=1)

        stub.thread.join(60)
        assert not stub.thread.is_alive()
    [reason] = stub.surroundings.reasons
    assert "the model has written into memory that is not its own" in reason
    assert "execute" not in stub.events


def test_coroutines_in_the_background_go_on_while_the_stub_waits(tmp_path: Path) -> None:
    class Later(Same):
        async def execute(self, requests: Any) -> None:
            senders = [request.get_response_sender() for request in requests]
            await asyncio.sleep(0)
            for sender in senders:
                sender.send(pb_utils.InferenceResponse(), wire.FINAL)

    with serving(tmp_path, Later, model_transaction_policy={"decoupled": True}) as stub:
        [own_id] = stub.send_batches([body()])

        answered: list[int] = []
        executed: list[int] = []
        while own_id not in answered or not executed:
            results, _ = stub.receive_results()
            answered += [outcome.id for outcome in results.outcomes]
            executed += [one.batch for one in results.executed]
        assert ([own_id], [1]) == (answered, executed)

        stub.sync()


def test_coroutines_in_the_background_may_clean_up_at_the_end(tmp_path: Path) -> None:
    begun = threading.Event()

    class Forever(Same):
        async def execute(self, requests: Any) -> None:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                for _ in range(9):
                    await asyncio.sleep(0)
                self.events.append("cleaned up")

    with serving(tmp_path, Forever, model_transaction_policy={"decoupled": True}) as stub:
        stub.send_batches([body()])
        assert begun.wait(30)

    assert "cleaned up" in stub.events


def test_metrics_that_a_coroutine_changes_in_the_background_are_told(tmp_path: Path) -> None:
    events: list[tuple[Any, Any]] = []

    class Counting(Same):
        async def execute(self, requests: Any) -> None:
            event = asyncio.Event()
            events.append((asyncio.get_running_loop(), event))
            for request in requests:
                request.get_response_sender().send(flags=wire.FINAL)
            await event.wait()
            for _ in range(2):  # what follows soon after another is not sent with it
                measures.change(metric, "add", 1.0)

    with HostedStub(tmp_path, Counting, model_transaction_policy={"decoupled": True}) as stub:
        completed = stub.load(_PATH, stub.config)
        measures = stub.surroundings.instance.measures
        metric = measures.add(measures.add_family("f", "", COUNTER), COUNTER, {}, [])
        stub.initialize(completed)
        stub.send_batches([body()])
        eventually(lambda: events, 30, "it waits")
        stub.sync()
        [(loop, event)] = events

        loop.call_soon_threadsafe(event.set)

        growth = 0.0
        while growth < 2.0:
            growth += stub.receive_growth()
        assert 0 == stub.finish()


def test_a_reply_that_the_model_will_not_take_is_read_while_the_stub_waits(tmp_path: Path) -> None:
    with closing(Broker(tmp_path, 1)) as broker, serving(tmp_path) as stub:
        asker = stub.surroundings.instance.asker
        question = asker.ask(wire.Request(0, 0, "m", -1, 0, 0, 0, 0, 1, 0, 0), b"")
        asker.drop(question)
        broker.hear_all(wire.Infer, 1)

        broker.reply(question.row.id)

        eventually(lambda: not asker.orphans, 60, "the loop has read it")


def test_a_cancellation_reaches_a_model_that_asks(tmp_path: Path) -> None:
    begun = threading.Event()

    class Asking(Same):
        def execute(self, requests: Any) -> Any:
            begun.set()
            eventually(requests[0].is_cancelled, 30)
            return [pb_utils.InferenceResponse() for _ in requests]

    with serving(tmp_path, Asking) as stub:
        [own_id] = stub.send_batches([body()])
        assert begun.wait(30)
        stub.sync()

        stub.cancel_execution(own_id)

        assert [own_id] == [outcome.id for outcome in stub.receive_results()[0].outcomes]


def test_another_broker_is_followed_while_a_coroutine_of_the_model_is_awaited(
    tmp_path: Path,
) -> None:
    class Waiting(Same):
        async def execute(self, requests: Any) -> Any:
            event = asyncio.Event()
            events.append((asyncio.get_running_loop(), event))
            await event.wait()
            return [pb_utils.InferenceResponse() for _ in requests]

    events: list[tuple[Any, Any]] = []
    with serving(tmp_path, Waiting) as stub:
        [own_id] = stub.send_batches([body()])
        eventually(lambda: events, 30)

        stub.move_broker(epoch=2)
        stub.welcome_stub()
        stub.sync()
        loop, event = events[0]
        loop.call_soon_threadsafe(event.set)

        assert [own_id] == [outcome.id for outcome in stub.receive_results()[0].outcomes]
