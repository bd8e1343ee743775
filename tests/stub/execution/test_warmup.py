"""The samples of model_warmup: what the model is given, how often, and what fails a load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.stub.fakes import LOAD
from tests.stub.supervisor import FakeSupervisor
from tests.support.refusals import refusal
from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.inference import InferenceRequest
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.watch import Watch

_A = {"name": "A", "data_type": "TYPE_FP32", "dims": [2]}


class Warming:
    """A stub without a process whose model keeps what it is given."""

    def __init__(
        self, directory: Path, *samples: dict[str, Any], memory: Any = None, **config: Any
    ) -> None:
        self.instance = StubInstance(LOAD, lambda message: None, memory)
        self.watch = Watch()
        self.config = {"name": "m", "input": [_A], "model_warmup": list(samples), **config}
        self.instance.configure(json.dumps(self.config))
        self.warmup = Warmup(self.config, str(directory))
        self.batches: list[list[InferenceRequest]] = []
        #: What happens while the loop waits.
        self.meanwhile: list[Any] = []

    def execute(self, requests: Any) -> Any:
        self.batches.append(list(requests))
        return [pb_utils.InferenceResponse() for _ in requests]

    def run(self) -> Warming:
        model = PythonModel(LOAD, None, self.watch)
        # in place of code that is loaded from a file
        model._execute = lambda requests: self.execute(requests)
        model._is_decoupled = self.instance.is_decoupled
        progress = Mock(ProgressView)
        self.warmup.run(model, self.instance, progress, lambda: self.meanwhile.pop(0)())
        assert {0} == {call.args[0] for call in progress.begin.mock_calls} or not self.batches
        return self

    def refusal(self, kind: type[ZmqTritonError] = InvalidArgument) -> str:
        return refusal(kind, self.run)

    def arrays(self) -> list[list[np.ndarray]]:
        """The inputs of each batch's first request."""
        return [[tensor.as_numpy() for tensor in batch[0].inputs()] for batch in self.batches]


def sample(count: int = 0, size: int = 1, **inputs: Any) -> dict[str, Any]:
    return {"name": "s", "batch_size": size, "count": count, "inputs": inputs}


def zeros(**more: Any) -> dict[str, Any]:
    return {"data_type": "TYPE_FP32", "dims": ["2"], "zero_data": True, **more}


def test_a_batch_has_as_many_requests_as_the_sample_says(tmp_path: Path) -> None:
    [batch] = Warming(tmp_path, sample(size=3, A=zeros()), max_batch_size=4).run().batches

    assert 3 == len(batch)
    assert [(1, 2)] * 3 == [request.inputs()[0].as_numpy().shape for request in batch]


def test_a_sample_without_requests_is_none(tmp_path: Path) -> None:
    assert [] == Warming(tmp_path, sample(size=0, A=zeros())).run().batches


@pytest.mark.parametrize(("limit", "size", "texts"), [(0, 2, 2), (4, 5, 5), (4, 1000, 64)])
def test_a_batch_that_is_too_large_is_refused_once_for_each_request(
    tmp_path: Path, limit: int, size: int, texts: int
) -> None:
    warming = Warming(tmp_path, sample(size=size, A=zeros()), max_batch_size=limit)

    text = warming.refusal()

    said = f"batch size {size} for 'm_0_0', max allowed is {limit}; "
    assert "failed to run warmup sample 's': " + said * texts == text
    assert [] == warming.batches


def test_what_does_not_fit_the_configuration_is_refused(tmp_path: Path) -> None:
    warming = Warming(tmp_path, sample(A=zeros(dims=["3"])))

    assert "unexpected shape" in warming.refusal()
    assert [] == warming.batches


def test_the_states_of_samples_are_not_kept(tmp_path: Path) -> None:
    state = {"input_name": "I", "output_name": "O", "data_type": "TYPE_INT32", "dims": [2]}
    warming = Warming(tmp_path, sample(A=zeros()), sequence_batching={"state": [state]}).run()

    [[request]] = warming.batches
    assert ["A", "I"] == [tensor.name() for tensor in request.inputs()]
    assert warming.instance.states is not None
    assert 0 == len(warming.instance.states.sequences)


def test_random_data_is_random_and_booleans_are_booleans(tmp_path: Path) -> None:
    names = [
        {"name": "A", "data_type": "TYPE_INT64", "dims": [500]},
        {"name": "B", "data_type": "TYPE_BOOL", "dims": [500]},
        {"name": "C", "data_type": "TYPE_STRING", "dims": [2]},
    ]
    inputs: dict[str, Any] = {
        str(row["name"]): {"data_type": row["data_type"], "dims": row["dims"], "random_data": True}
        for row in names
    }
    numbers, booleans, strings = Warming(tmp_path, sample(**inputs), input=names).run().arrays()[0]
    assert len(set(numbers.tolist())) > 400
    assert ({0, 1}, [b"", b""]) == (set(booleans.view(np.uint8).tolist()), strings.tolist())


def test_data_is_read_from_a_file_as_far_as_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    for length in (2, 3):
        values = np.arange(1, length + 1, dtype=np.float32)
        (tmp_path / "warmup" / "data").write_bytes(values.tobytes())
        warming = Warming(tmp_path, sample(A=zeros(input_data_file="data"))).run()

        assert [1.0, 2.0] == warming.arrays()[0][0].tolist()


def test_a_file_that_is_missing_or_too_short_is_told_with_its_name(tmp_path: Path) -> None:
    warming = Warming(tmp_path, sample(A=zeros(input_data_file="data")))
    path = tmp_path / "warmup" / "data"
    text = f"failed to open text file for read {path}: No such file or directory"
    assert text == warming.refusal(InternalError)

    path.parent.mkdir()
    path.write_bytes(bytes(7))

    assert "expects 8 bytes, but the data provided from data only has 7 bytes" in (
        warming.refusal()
    )


def test_the_warm_up_lasts_until_senders_have_answered(tmp_path: Path) -> None:
    warming = Warming(tmp_path, sample(A=zeros()))
    kept: list[Any] = []

    def keep(requests: Any) -> None:
        kept.extend(request.get_response_sender() for request in requests)

    warming.execute = keep  # type: ignore[method-assign]
    warming.meanwhile = [
        lambda: None,
        lambda: kept.pop().send(pb_utils.InferenceResponse()),
    ]

    warming.run()

    assert [] == warming.meanwhile
    descriptors = [descriptor for descriptor, _ in warming.watch.loop.poll(0)]
    assert [warming.watch.bell_descriptor] == descriptors, "the loop would wait for ever"


def test_the_responses_of_a_stream_are_taken_as_they_come(tmp_path: Path) -> None:
    warming = Warming(tmp_path, sample(A=zeros()), model_transaction_policy={"decoupled": True})
    sent: list[int] = []

    def stream(requests: Any) -> None:
        [request] = requests
        sender = request.get_response_sender()
        for number in range(200):
            sender.send(pb_utils.InferenceResponse())
            sent.append(number)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    warming.execute = stream  # type: ignore[method-assign]

    warming.run()

    assert 200 == len(sent), "nobody reads, and the sender must not wait for readers"


def test_a_request_that_is_to_be_executed_again_is_given_again(tmp_path: Path) -> None:
    warming = Warming(tmp_path, sample(A=zeros()), sequence_batching={"iterative_sequence": True})
    flags: list[int] = []

    def step(requests: Any) -> Any:
        warming.batches.append(list(requests))
        [request] = requests
        if len(warming.batches) < 3:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [None]
        flags.append(1)
        return [pb_utils.InferenceResponse()]

    warming.execute = step  # type: ignore[method-assign]
    warming.meanwhile = [lambda: None] * 5

    warming.run()

    assert 3 == len(warming.batches)
    assert 5 == len(warming.meanwhile), "what is to be executed again is not waited for"


def test_the_memory_of_responses_is_released(tmp_path: Path, world: FakeSupervisor) -> None:
    warming = Warming(tmp_path, sample(A=zeros()), memory=world.memory)
    large = np.zeros(200_000, np.float32)

    def execute(requests: Any) -> Any:
        return [pb_utils.InferenceResponse([pb_utils.Tensor("O", large)]) for _ in requests]

    warming.execute = execute  # type: ignore[method-assign]

    warming.run()

    assert 0 == world.memory.arena.used
    assert world.stub_segments
