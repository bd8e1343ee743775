"""A stub's process whose broker dies: what it says to the next one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.stub.conftest import Write
from tests.stub.fakes import body, fp32
from tests.stub.running import RunningStub
from tests.support.waiting import eventually
from zmqtriton_floor import wire

pytestmark = pytest.mark.slow

#: Answers each request with its input, when the file that it names is there.
_WAITING = """
    import os, time
    class TritonPythonModel:
        def execute(self, requests):
            open("{begun}", "a").write("x")
            while not os.path.exists("{gate}"):
                time.sleep(0.001)
            return [pb_utils.InferenceResponse(r.inputs()) for r in requests]
"""
#: Keeps each sender, and answers with the last but one when another request comes.
_KEEPING = """
    class TritonPythonModel:
        def initialize(self, args):
            self.senders = []
        def execute(self, requests):
            for request in requests:
                self.senders.append((request.get_response_sender(), request.inputs()))
                if len(self.senders) > 1:
                    sender, inputs = self.senders.pop(0)
                    sender.send(pb_utils.InferenceResponse(inputs), flags=1)
"""


class Gated:
    """A model that does not come back from execute() before it may."""

    def __init__(self, directory: Path) -> None:
        self.gate, self.begun = directory / "gate", directory / "begun"
        self.code = _WAITING.format(gate=self.gate, begun=self.begun)

    def await_begin(self) -> None:
        eventually(lambda: self.begun.exists() and self.begun.read_text(), 30, "an execution")

    @property
    def executions(self) -> int:
        return len(self.begun.read_text())


def _watched(pid: int) -> int:
    """Return how many descriptors the process waits on."""
    count = 0
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += path.read_text().count("tfd:")
    return count


def test_a_dead_broker_is_not_waited_on(tmp_path: Path, write_model: Write) -> None:
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(_KEEPING))
        before = _watched(stub.process.pid)

        stub.close_broker()

        # It would be awake all the time else: the end of a connection can be read for ever.
        eventually(lambda: before - 1 == _watched(stub.process.pid), 30, "one less")
        stub.move_broker(epoch=2)
        stub.welcome_stub()
        eventually(lambda: before == _watched(stub.process.pid), 30, "the next one")


def test_it_tells_what_it_has_answered_with_the_answer(tmp_path: Path, write_model: Write) -> None:
    gated = Gated(tmp_path)
    gated.gate.touch()
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(gated.code))
        [own_id] = stub.send_batches([body(fp32("X"))])
        stub.receive_results()

        stub.move_broker(epoch=2)
        hello = stub.welcome_stub()

        assert hello.received == []
        assert hello.unconfirmed == [wire.Outcome(3, own_id, 0, "", wire.FINAL)]
        assert wire.decode_response(stub.hello_bodies[0]).outputs == [fp32("X")]


def test_it_says_hello_when_the_execution_ends_and_what_came_of_it(
    tmp_path: Path, write_model: Write
) -> None:
    gated = Gated(tmp_path)
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(gated.code))
        [own_id] = stub.send_batches([body(fp32("X"))])
        gated.await_begin()

        stub.move_broker(epoch=2)
        gated.gate.touch()
        hello = stub.welcome_stub()

        assert hello.received == []
        assert [(o.peer, o.id, o.flags) for o in hello.unconfirmed] == [(3, own_id, wire.FINAL)]
        assert wire.decode_response(stub.hello_bodies[0]).outputs == [fp32("X")]


def test_a_model_that_looks_around_within_execute_says_hello_from_there(
    tmp_path: Path, write_model: Write
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    code = f"""
        import os, time
        class TritonPythonModel:
            def execute(self, requests):
                sender = requests[0].get_response_sender()
                open("{begun}", "w").close()
                while not os.path.exists("{gate}"):
                    time.sleep(0.001)
                    sender.is_cancelled()
                sender.send(pb_utils.InferenceResponse(requests[0].inputs()), flags=1)
    """
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(code))
        [own_id] = stub.send_batches([body(fp32("X"))], batch=5)
        eventually(begun.exists, 30, "an execution")

        stub.move_broker(epoch=2)
        hello = stub.welcome_stub()
        gate.touch()
        results, _ = stub.receive_results()
        over, _ = (results, []) if results.executed else stub.receive_results()

        assert (hello.received, hello.is_executing) == ([wire.RequestKey(3, own_id)], 1)
        assert hello.unconfirmed == []
        assert [outcome.id for outcome in results.outcomes] == [own_id]
        assert [executed.batch for executed in over.executed] == [5]


def test_it_names_exactly_what_it_has_begun(tmp_path: Path, write_model: Write) -> None:
    gated = Gated(tmp_path)
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(gated.code))
        ids = stub.send_batches(*[[body(fp32("X"))]] * 5)
        gated.await_begin()

        stub.move_broker(epoch=2)
        gated.gate.touch()
        hello = stub.welcome_stub()
        named = [o.id for o in hello.unconfirmed] + [r.id for r in hello.received]
        stub.send_batches([body(fp32("Z"))], batch=7)
        results, _ = stub.receive_results()

        assert named == ids[: len(named)]
        assert gated.executions == len(named) + 1
        assert [executed.batch for executed in results.executed] == [7]


def test_it_names_what_it_will_answer_later_and_answers_it(
    tmp_path: Path, write_model: Write
) -> None:
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(_KEEPING))
        [kept] = stub.send_batches([body(fp32("X"))], batch=1)
        stub.receive_results()

        stub.move_broker(epoch=2)
        hello = stub.welcome_stub()
        [other] = stub.send_batches([body(fp32("Y"))], batch=2)
        results, bodies = stub.receive_results()

        assert hello.received == [wire.RequestKey(3, kept)]
        assert hello.unconfirmed == []
        assert [outcome.id for outcome in results.outcomes] == [kept]
        assert wire.decode_response(bodies[0]).outputs == [fp32("X")]
        assert other != kept


def test_a_stream_goes_on_and_its_end_is_told_to_the_next_broker(
    tmp_path: Path, write_model: Write
) -> None:
    code = """
        class TritonPythonModel:
            def initialize(self, args):
                self.sender = None
            def execute(self, requests):
                for request in requests:
                    self.sender = self.sender or request.get_response_sender()
                    last = request.inputs()[0].name() == "LAST"
                    self.sender.send(pb_utils.InferenceResponse(request.inputs()), flags=int(last))
                    if request.get_response_sender() is not self.sender:
                        request.get_response_sender().send(flags=1)
    """
    config = {"name": "m", "model_transaction_policy": {"decoupled": True}}

    def numbers(stub: RunningStub, of: int) -> list[tuple[int, int]]:
        """Until the request that carried the orders is done."""
        outcomes: list[tuple[int, int]] = []
        while True:
            results, _ = stub.receive_results()
            outcomes += [(o.number, o.flags) for o in results.outcomes if o.id == of]
            if results.executed:
                return outcomes

    with RunningStub(tmp_path) as stub:
        stub.start(write_model(code), config)
        [stream] = stub.send_batches([body(fp32("X"))], batch=1)
        before = numbers(stub, stream)

        stub.move_broker(epoch=2)
        hello = stub.welcome_stub()
        stub.send_batches([body(fp32("Y"))], batch=2)
        stub.send_batches([body(fp32("LAST"))], batch=3)
        after = numbers(stub, stream) + numbers(stub, stream)

        assert hello.received == [wire.RequestKey(3, stream)]
        assert before + after == [(0, 0), (1, 0), (2, wire.FINAL)]

        stub.move_broker(epoch=3)
        hello = stub.welcome_stub()
        assert (3, stream, 2) in [(o.peer, o.id, o.number) for o in hello.unconfirmed]


@pytest.mark.parametrize("moves", [1, 3])
def test_a_broker_that_dies_while_the_model_loads_is_no_failure_to_load(
    tmp_path: Path, write_model: Write, moves: int
) -> None:
    gated = Gated(tmp_path)
    gated.gate.touch()
    with RunningStub(tmp_path) as stub:
        completed = stub.load(write_model(gated.code), {"name": "m"})
        for epoch in range(2, 2 + moves):
            stub.move_broker(epoch)

        stub.send_message(wire.Initialize('{"name": "m"}'))
        stub.welcome_stub()
        stub.receive_message(wire.ModelLoaded)

        assert completed["name"] == "m"
        assert isinstance(stub.infer(fp32("X")), wire.ResponseBody)


def test_the_process_and_its_model_stay(tmp_path: Path, write_model: Write) -> None:
    code = """
        import os
        class TritonPythonModel:
            def initialize(self, args):
                self.count = 0
            def execute(self, requests):
                self.count += 1
                parameters = {"pid": os.getpid(), "count": self.count}
                return [pb_utils.InferenceResponse(parameters=parameters) for _ in requests]
    """
    with RunningStub(tmp_path) as stub:
        stub.start(write_model(code))
        for count in (1, 2, 3):
            response = stub.infer()
            assert isinstance(response, wire.ResponseBody)
            assert response.parameters == {"pid": stub.process.pid, "count": count}
            stub.move_broker(epoch=1 + count)
            stub.welcome_stub()
        assert os.path.exists(f"/proc/{stub.process.pid}")
