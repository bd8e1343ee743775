"""ONNX files with sequences on a real server: their controls, their states, both strategies."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.support import onnx_models
from tests.support.clients import infer_inputs
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]


#: The configurations of Triton's docs/examples/model_repository, in shorter lines.
SIMPLE = """platform: "onnxruntime_onnx"
max_batch_size: 8
sequence_batching { control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ] }
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
DYNA = """platform: "onnxruntime_onnx"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 10000000
  oldest { max_candidate_sequences: 1024 max_queue_delay_microseconds: 10000 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] }
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
parameters [ { key: "execute_delay_ms" value: { string_value: "3" } } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
#: The model of texts that tritonclient's scripts have beside it.
STRING_DYNA = DYNA.replace('platform: "onnxruntime_onnx"', 'backend: "dyna_sequence"').replace(
    "TYPE_UINT64", "TYPE_STRING"
)
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
IDLE = "max_sequence_idle_microseconds: 60000000"
SUMMING = """backend: "onnxruntime" max_batch_size: 4
input [ { name: "VALUE" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ %s ]
sequence_batching {
  %s
  control_input [
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "BEFORE" output_name: "AFTER" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state [ { name: "first" data_type: TYPE_INT32 dims: [ 1 ] data_file: "hundred" } ] } ] }
model_warmup { name: "w" batch_size: 2
  inputs { key: "VALUE" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }
  inputs { key: "READY" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }
"""
HIDDEN = ", ".join(
    f'{{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] }}'
    for name in ("TOTAL", "PLACE", "ROWS", "BUSY")
)
SHOWN = f'{HIDDEN}, {{ name: "AFTER" data_type: TYPE_INT32 dims: [ 1 ] }}'
#: Two of four slots are enough, or a minute that no test waits for.
TWO = "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 60000000 }"
THREE = """oldest { max_candidate_sequences: 8 preferred_batch_size: [ 3 ]
  max_queue_delay_microseconds: 60000000 }"""
#: Inputs and outputs are the file's.
REMEMBERING = """backend: "onnxruntime" max_batch_size: 2
sequence_batching { direct { } max_sequence_idle_microseconds: 60000000
  state [ { input_name: "BEFORE" output_name: "AFTER" data_type: TYPE_INT32 dims: [ -1 ] } ] }
"""
SPEAKING = """backend: "onnxruntime"
input [ { name: "WORD" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
sequence_batching { oldest { max_candidate_sequences: 4 } max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "NAME" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] } ]
  state [ { input_name: "BEFORE" output_name: "AFTER" data_type: TYPE_STRING dims: [ 1 ] } ] }
"""
VALUES = [11, 7, 5, 3, 2, 0, 1]


class Step(NamedTuple):
    """A request of a sequence."""

    model: str
    sequence: int | str
    value: int
    is_start: bool = False
    is_end: bool = False

    def arguments(self, module: Any, name: str = "VALUE") -> dict[str, Any]:
        return {
            "model_name": self.model,
            "inputs": infer_inputs(module, **{name: np.array([[self.value]], np.int32)}),
            "sequence_id": self.sequence,
            "sequence_start": self.is_start,
            "sequence_end": self.is_end,
        }


def prepare(server: Server) -> None:
    written = [
        ("simple_sequence", SIMPLE, onnx_models.adding_start),
        ("simple_dyna_sequence", DYNA, onnx_models.adding_start_and_end),
        ("direct", SUMMING % (SHOWN, f"{TWO} {IDLE}") + ONE, onnx_models.summing),
        ("oldest", SUMMING % (HIDDEN, f"{THREE} {IDLE}") + ONE, onnx_models.summing),
        ("remembering", REMEMBERING + ONE, onnx_models.remembering),
        ("speaking", SPEAKING + ONE, onnx_models.speaking),
    ]
    for name, text, write in written:
        directory = server.repository / name
        write(directory / "1" / "model.onnx")
        (directory / "config.pbtxt").write_text(text)
    for name in ("direct", "oldest"):
        first = server.repository / name / "initial_state" / "hundred"
        first.parent.mkdir()
        first.write_bytes((100).to_bytes(4, "little"))
    texts = server.repository / "simple_string_dyna_sequence"
    (texts / "1").mkdir(parents=True)
    (texts / "config.pbtxt").write_text(STRING_DYNA)


def stream(server: Server, steps: Sequence[Step], name: str = "VALUE") -> list[Any]:
    """Send all on one gRPC stream, without a wait; the results in the same order."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number, step in enumerate(steps):
            arguments = step.arguments(grpc_client, name)
            client.async_stream_infer(**arguments, request_id=str(number))
        found = {}
        for _ in steps:
            result, error = answers.get(timeout=60)
            assert error is None, error
            found[int(result.get_response().id)] = result
        client.stop_stream()
    return [found[number] for number in range(len(steps))]


def one_by_one(server: Server, steps: Sequence[Step], name: str = "VALUE") -> list[Any]:
    """Send each when the one before is answered, over HTTP."""
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        return [client.infer(**step.arguments(http_client, name)) for step in steps]


def blocking(server: Server, steps: Sequence[Step], name: str = "VALUE") -> list[Any]:
    """Likewise over gRPC, without a stream."""
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        return [client.infer(**step.arguments(grpc_client, name)) for step in steps]


def numbers(result: Any, *names: str) -> tuple[int, ...]:
    return tuple(result.as_numpy(name).item() for name in names)


def scripted(model: str, sequence: int | str, first: int, sign: int) -> list[Step]:
    """A sequence of tritonclient's scripts."""
    values = [first, *(sign * value for value in VALUES)]
    last = len(values) - 1
    return [Step(model, sequence, v, n == 0, n == last) for n, v in enumerate(values)]


@pytest.mark.row("K03", "E72")
@pytest.mark.parametrize("send", [stream, one_by_one, blocking])
def test_controls_reach_triton_s_simple_sequence(server: Server, send: Any) -> None:
    steps = [
        *scripted("simple_sequence", 1000, 0, 1),
        *scripted("simple_sequence", 1001, 100, -1),
        *scripted("simple_sequence", "4f0c-name", 20, -1),
    ]

    found = [numbers(result, "OUTPUT")[0] for result in send(server, steps, "INPUT")]

    negative = [-value for value in VALUES]
    assert [1, *VALUES, 101, *negative, 21, *negative] == found


@pytest.mark.row("K03", "E73")
@pytest.mark.parametrize("send", [stream, one_by_one, blocking])
def test_controls_reach_triton_s_simple_dyna_sequence(server: Server, send: Any) -> None:
    steps = [
        *scripted("simple_dyna_sequence", 1000, 0, 1),
        *scripted("simple_dyna_sequence", 1001, 100, -1),
        *scripted("simple_string_dyna_sequence", "1002", 20, -1),
    ]

    found = [numbers(result, "OUTPUT")[0] for result in send(server, steps, "INPUT")]

    *others, last = VALUES
    sums = [20 - sum(VALUES[:place]) for place in range(len(VALUES) + 1)]
    sums[-1] += 1002
    assert [1, *others, last + 1000] == found[:8]
    assert [101, *(-value for value in others), -last + 1001] == found[8:16]
    assert sums == found[16:]


@pytest.mark.row("K03", "E72", "E75")
def test_direct_sequences_keep_their_place_and_state(server: Server) -> None:
    def ask(*steps: tuple[str, int, str]) -> list[tuple[int, ...]]:
        sent = [Step("direct", name, value, "s" in to, "e" in to) for name, value, to in steps]
        results = stream(server, sent)
        return [numbers(one, "TOTAL", "AFTER", "PLACE", "ROWS", "BUSY") for one in results]

    # each waits for a second one, so that it is known what is executed together
    assert ask(("a", 1, "s"), ("b", 2, "s")) == [(101, 101, 1, 2, 2), (102, 102, 2, 2, 2)]
    assert ask(("c", 3, "s"), ("d", 4, "s")) == [(103, 103, 3, 4, 2), (104, 104, 4, 4, 2)]
    assert ask(("a", 10, ""), ("c", 10, "")) == [(111, 111, 1, 3, 2), (113, 113, 3, 3, 2)]
    assert ask(("b", 20, "e"), ("d", 20, "e")) == [(122, 122, 2, 4, 2), (124, 124, 4, 4, 2)]
    # a START amid a sequence begins anew, also before an empty place
    assert ask(("a", 5, "s"), ("c", 10, "")) == [(105, 105, 1, 3, 2), (123, 123, 3, 3, 2)]
    assert ask(("a", 10, "e"), ("c", 1, "e")) == [(115, 115, 1, 3, 2), (124, 124, 3, 3, 2)]
    assert ask(("b", 6, "se"), ("f", 7, "se")) == [(106, 106, 1, 2, 2), (107, 107, 2, 2, 2)]


@pytest.mark.row("K03", "E73", "E75")
def test_the_oldest_of_several_sequences_are_one_batch_with_their_states(server: Server) -> None:
    def ask(value: int, **flags: bool) -> list[tuple[int, ...]]:
        steps = [Step("oldest", key, value * key, **flags) for key in (1, 2, 3)]
        results = stream(server, steps)
        assert [one.as_numpy("AFTER") for one in results] == [None] * 3  # no output of its own
        return [numbers(one, "TOTAL", "ROWS", "BUSY") for one in results]

    assert ask(1, is_start=True) == [(101, 3, 3), (102, 3, 3), (103, 3, 3)]
    assert ask(10) == [(111, 3, 3), (122, 3, 3), (133, 3, 3)]
    assert ask(1, is_end=True) == [(112, 3, 3), (124, 3, 3), (136, 3, 3)]
    assert ask(1, is_start=True, is_end=True) == [(101, 3, 3), (102, 3, 3), (103, 3, 3)]


@pytest.mark.row("E75")
def test_a_state_may_grow_beside_an_empty_slot(server: Server) -> None:
    def ask(*steps: Step) -> list[Any]:
        results = one_by_one(server, steps)
        return [(one.as_numpy("AFTER").ravel().tolist(), *numbers(one, "ROWS")) for one in results]

    first, second = ("remembering", 1), ("remembering", 2)
    found = ask(
        Step(*first, 5, is_start=True),
        Step(*second, 7, is_start=True),
        Step(*second, 8),
        Step(*second, 9, is_end=True),
        Step(*first, 6, is_end=True),
    )

    # the file's own inputs without the state, and its outputs
    assert found == [([0, 5], 1), ([0, 7], 2), ([0, 7, 8], 2), ([0, 7, 8, 9], 2), ([0, 5, 6], 1)]


@pytest.mark.row("E75")
def test_states_and_ids_may_be_texts(server: Server) -> None:
    def say(client: Any, sequence: str, word: str, **flags: bool) -> Any:
        inputs = infer_inputs(http_client, WORD=np.array([word.encode()], np.object_))
        result = client.infer("speaking", inputs, sequence_id=sequence, **flags)
        return result.as_numpy("TEXT").item().decode()

    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        assert say(client, "x:", "ä", sequence_start=True) == "x:ä"
        assert say(client, "y:", "b", sequence_start=True) == "y:b"
        assert say(client, "x:", "c", sequence_end=True) == "x:äc"
        assert say(client, "y:", "d", sequence_end=True) == "y:bd"
