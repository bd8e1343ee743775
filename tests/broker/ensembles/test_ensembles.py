"""Requests to ensembles: which steps run when, with what, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.ensemble_world import EnsembleHarness, ensemble, model, step, tensor
from tests.broker.world import F, request
from zmqtriton.broker.ensembles.plan import EnsemblePlan
from zmqtriton.broker.ensembles.runs import TensorSet
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, InvalidArgument, Unavailable

#: The owner of memory is the stub of the first model.
OWNER = 2


def chain(**more: Any) -> EnsembleHarness:
    """Return an ensemble: x → first → middle → second → y."""
    steps = [step("first", {"I": "x"}, {"O": "t"}), step("second", {"I": "t"}, {"O": "y"})]
    return EnsembleHarness(ensemble(steps, **more), model("first"), model("second"))


def fork() -> EnsembleHarness:
    """Return an ensemble: x → left → p, x → right → q, then both → join → y."""
    steps = [
        step("join", {"A": "p", "B": "q"}, {"O": "y"}),
        step("left", {"I": "x"}, {"O": "p"}),
        step("right", {"I": "x"}, {"O": "q"}),
    ]
    join = model("join", inputs="AB")
    return EnsembleHarness(ensemble(steps), model("left"), model("right"), join)


@pytest.mark.row("E53")
def test_branches_run_side_by_side_and_meet_when_both_are_there() -> None:
    world = fork()

    world.infer_ensemble(1)

    assert {"left", "right"} == world.busy_models()
    world.respond("right", tensor("O", b"q"))
    assert {"left"} == world.busy_models()
    world.respond("left", tensor("O", b"p"))
    assert [tensor("A", b"p"), tensor("B", b"q")] == world.executing_request("join").inputs
    world.respond("join", tensor("O", b"y"))
    assert [tensor("y", b"y")] == world.response(1).outputs


@pytest.mark.row("E53")
def test_references_pass_through_as_they_are() -> None:
    world = chain()
    reference = wire.Reference(OWNER, 2, 3, 4096, 600_000)

    world.infer_ensemble(1, wire.RequestBody("", {}, [], [tensor("x", reference)]))

    assert [tensor("I", reference)] == world.executing_request("first").inputs


@pytest.mark.row("E53")
def test_what_nobody_needs_is_neither_run_nor_asked_for() -> None:
    steps = [
        step("two", {"I": "x"}, {"O": "y", "P": "z"}),
        step("more", {"I": "x"}, {"O": "w"}),
    ]
    world = EnsembleHarness(
        ensemble(steps, outputs="yzw"), model("two", outputs="OP"), model("more")
    )

    world.infer_ensemble(1, wire.RequestBody("", {}, ["z"], [tensor("x")]))

    assert ({"two"}, ["P"]) == (world.busy_models(), world.executing_request("two").outputs)
    world.respond("two", tensor("P", b"z"))
    assert [tensor("z", b"z")] == world.response(1).outputs


@pytest.fixture
def world() -> EnsembleHarness:
    """A chain whose first model executes the request 1."""
    return chain().infer_ensemble(1)


@pytest.mark.row("E54")
def test_the_first_error_ends_the_ensemble_in_its_name(world: EnsembleHarness) -> None:
    world.respond_error("first", "no luck")

    [reply] = world.finals(F, 1)
    assert (InternalError.number, "in ensemble 'e', no luck") == (reply.code, reply.text)
    assert set() == world.busy_models()
    assert {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 1} == world.counters("e").failures


def test_a_step_whose_model_is_gone_fails(world: EnsembleHarness) -> None:
    world.core.retire(wire.Retire(world.numbers["second"]))

    world.respond("first", tensor("O"))

    text = "in ensemble 'e', Request for unknown model: 'second' is not at ready state"
    [reply] = world.finals(F, 1)
    assert (Unavailable.number, text) == (reply.code, reply.text)


@pytest.mark.row("E59")
def test_an_output_that_a_step_did_not_make_is_an_input_that_was_not_given(
    world: EnsembleHarness,
) -> None:
    world.respond("first")

    assert [] == world.executing_request("second").inputs
    world.respond("second")
    assert [] == world.response(1).outputs


def test_an_answer_without_a_body_is_an_error(world: EnsembleHarness) -> None:
    world.respond_with_body("first", b"")

    assert world.error_texts(1)[0].startswith("in ensemble 'e', unexpected deadlock")


def test_a_body_that_does_not_decode_fails_the_request_alone(world: EnsembleHarness) -> None:
    world.respond_with_body("first", b"\xc1")

    assert ["in ensemble 'e', body is not a response"] == world.error_texts(1)


@pytest.mark.row("E67")
def test_a_cancelled_ensemble_stops_between_steps(world: EnsembleHarness) -> None:
    world.cancel(F, 1)

    assert (1, []) == (len(world.cancelled_executions), world.finals(F, 1))
    world.respond("first", tensor("O"))
    assert (set(), ["request was cancelled"]) == (world.busy_models(), world.error_texts(1))
    assert 1 == world.counters("e").failures["CANCELED"]


def test_a_deadline_ends_the_ensemble_and_the_steps_that_wait(world: EnsembleHarness) -> None:
    world.infer_ensemble(2, deadline_ns=5_000)

    world.tick(10_000)

    where = "in ensemble 'e', the request waited for 0.000 s in the queue of 'first'"
    assert [f"Deadline Exceeded: {where}"] == world.error_texts(2)
    world.respond("first", tensor("O"))
    assert {"second"} == world.busy_models()


@pytest.mark.row("E58")
def test_what_was_asked_of_the_scheduler_is_asked_for_each_step() -> None:
    world = chain()

    world.infer_ensemble(1, flags=wire.SEQUENCE_START, priority=3, timeout_us=9, correlation="s")

    for name in ("first", "second"):
        [work] = world.batched_requests[world.serials[name]]
        assert (wire.SEQUENCE_START | wire.UNCHECKED, 3, 9, "s") == (
            work.flags,
            work.priority,
            work.timeout_us,
            work.correlation,
        )
        world.respond(name, tensor("O"))


@pytest.mark.row("E58")
def test_a_step_may_change_the_sequence_of_those_after_it() -> None:
    world = chain().infer_ensemble(1, flags=wire.SEQUENCE_START, correlation=4)

    parameters = {"sequence_id": 9, "sequence_start": False, "sequence_end": True}
    world.respond("first", tensor("O"), parameters=parameters)

    [work] = world.batched_requests[world.serials["second"]]
    assert (wire.SEQUENCE_END | wire.UNCHECKED, 9) == (work.flags, work.correlation)


@pytest.mark.parametrize(
    ("max_batch_size", "shape", "expected", "elements"),
    [
        (0, [4], [4], 0),
        (8, [2, 4], [2, 4], 2),
        (8, [4], [1, 4], 1),
        (0, [1, 4], [4], 0),
        (0, [3, 4], [3, 4], 0),
    ],
)
def test_a_batch_dimension_comes_and_goes_where_only_one_side_has_it(
    max_batch_size: int, shape: list[int], expected: list[int], elements: int
) -> None:
    steps = [step("m", {"I": "x"}, {"O": "y"})]
    world = EnsembleHarness(ensemble(steps), model("m", dims=[4], max_batch_size=max_batch_size))

    world.infer_ensemble(1, wire.RequestBody("", {}, [], [tensor("x", shape=shape)]))

    assert expected == world.executing_request("m").inputs[0].shape
    [request] = world.core.instances[world.serials["m"]].open_requests.values()
    assert max(1, elements) == request.elements


def test_an_optional_input_that_is_not_given_is_left_out() -> None:
    steps = [step("m", {"I": "x", "J": "o"}, {"O": "y"})]
    world = EnsembleHarness(ensemble(steps, inputs="xo"), model("m", inputs="IJ"))

    world.infer_ensemble(1)

    assert ["I"] == [t.name for t in world.executing_request("m").inputs]


@pytest.mark.row("E57")
def test_without_a_version_the_newest_one_is_asked() -> None:
    world = EnsembleHarness(ensemble([step("m", {"I": "x"}, {"O": "y"}, version=0)]), model("m"))

    world.infer_ensemble(1)

    assert {"m"} == world.busy_models()


def test_statistics_count_the_ensemble_and_each_step(world: EnsembleHarness) -> None:
    world.respond("first", tensor("O"))
    world.respond("second", tensor("O"))

    counters = [world.counters(name) for name in ("e", "first", "second")]

    # Clients look for the version whose queue was busy, in an ensemble too.
    assert [(1, 1, 1, 1)] * 3 == [
        (c.success.count, c.queue.count, c.compute.count, c.execution_count) for c in counters
    ]


def test_a_step_is_in_the_queue_until_its_stub_begins(world: EnsembleHarness) -> None:
    world.now += 100
    world.begun_ns = world.now - 30
    world.respond("first", tensor("O"))
    world.begun_ns = world.now + 1_000  # as if its clock were another one

    world.respond("second", tensor("O"))

    assert [70, 70, 0] == [world.counters(name).queue.ns for name in ("e", "first", "second")]
    assert world.counters("e").compute.infer_ns == 30


def test_an_ensemble_that_is_removed_answers_what_it_had_begun(world: EnsembleHarness) -> None:
    world.core.remove(wire.RemoveGeneration(world.numbers["e"], "gave up"), world.now)
    world.respond("first", tensor("O"))

    assert ["gave up"] == world.error_texts(1)


# ------------------------------------------------------------------- memory

BLOCK = wire.Block(OWNER, 1, 5)
LARGE = wire.Reference(OWNER, 1, 5, 0, 600_000)


def test_a_block_of_an_ensemble_within_is_held_until_the_steps_after_it_are_answered() -> None:
    inner = ensemble([step("m", {"I": "a"}, {"O": "b"})], name="inner", inputs="a", outputs="b")
    outer = ensemble([step("inner", {"a": "x"}, {"b": "t"}), step("last", {"I": "t"}, {"O": "y"})])
    world = EnsembleHarness(outer, inner, model("m"), model("last"))
    world.infer_ensemble(1, wire.RequestBody("", {}, [], [tensor("x", bytes(16))]))

    world.respond("m", tensor("O", LARGE), blocks=[BLOCK])
    assert {} == world.released_blocks
    world.respond("last", tensor("O"))

    assert {OWNER: [BLOCK]} == world.released_blocks


#: An input of F that lies in its memory.
_OWN_INPUT = wire.Reference(F, 1, 9, 0, 600_000)
_OWN_BLOCK = wire.Block(F, 1, 9)


def _with_large_input(*configs: dict[str, Any]) -> EnsembleHarness:
    world = EnsembleHarness(*configs)
    body = wire.RequestBody("", {}, [], [tensor("x", _OWN_INPUT)])
    return world.infer_ensemble(1, body, flags=wire.HAS_REFERENCES)


def test_an_input_that_the_only_step_passes_on_is_the_askers_until_it_has_read_the_answer() -> None:
    world = _with_large_input(ensemble([step("only", {"I": "x"}, {"O": "y"})]), model("only"))

    world.respond("only", tensor("O", _OWN_INPUT), blocks=[_OWN_BLOCK])

    assert ({F: [_OWN_BLOCK]}, {}) == (world.leased_blocks, world.released_blocks)
    assert [_OWN_BLOCK] == world.core.blocks.leases.release(F, [_OWN_BLOCK])


def test_an_output_that_a_step_still_reads_is_leased_to_the_client_once_more() -> None:
    steps = [step("first", {"I": "x"}, {"O": "y"}), step("second", {"I": "y"}, {"O": "z"})]
    config = ensemble(steps, outputs="yz", model_transaction_policy={"decoupled": True})
    wave = TensorSet(EnsemblePlan("e", config).select([]))
    assert [] == wave.lease([BLOCK], {"y": tensor("y", LARGE)})

    assert ([], [BLOCK]) == wave.take_leases(["y"])
    assert [BLOCK] == wave.release_inputs(EnsemblePlan("e", config).steps[1])
    assert [] == wave.take_all_leases()


def test_a_dead_asker_is_handed_nothing(world: EnsembleHarness) -> None:
    world.respond("first", tensor("O", LARGE), blocks=[BLOCK])

    world.kill_peer(F)
    world.respond("second", tensor("O", LARGE), blocks=[BLOCK])

    assert (0, {OWNER: [BLOCK, BLOCK]}) == (world.core.blocks.leases.count, world.released_blocks)


# ------------------------------------------------------------ decoupled steps


def stream(limit: int = 0) -> EnsembleHarness:
    """Return an ensemble: x → many (decoupled) → t, t → each (so many at a time) → y."""
    steps = [step("many", {"I": "x"}, {"O": "t"}), step("each", {"I": "t"}, {"O": "y"})]
    decoupled: Any = {"model_transaction_policy": {"decoupled": True}}
    config = ensemble(steps, **decoupled)
    config["ensemble_scheduling"] |= {"max_inflight_requests": limit} if limit else {}
    return EnsembleHarness(config, model("many", **decoupled), model("each"))


@pytest.fixture
def streaming() -> EnsembleHarness:
    """A stream whose first model executes the request 1."""
    return stream().infer_ensemble(1)


@pytest.mark.row("E55")
def test_each_response_of_a_decoupled_step_flows_on_by_itself(streaming: EnsembleHarness) -> None:
    streaming.respond("many", tensor("O", b"0"), flags=0)
    streaming.respond("many", tensor("O", b"1"), flags=0, number=1)
    streaming.respond("many", flags=wire.FINAL, number=2)
    for data in (b"a", b"b"):
        streaming.respond("each", tensor("O", data))

    assert [(0, 0), (0, 1), (wire.FINAL, 2)] == [
        (r.flags, r.number) for r in streaming.replies[F, 1]
    ]
    assert [b"a", b"b"] == [r.outputs[0].data for r in streaming.responses(1)]
    assert 0 == streaming.core.limits.unanswered


def test_a_decoupled_step_stalls_while_nobody_reads_the_ensemble(
    streaming: EnsembleHarness,
) -> None:
    window = wire.STREAM_WINDOW

    for number in range(2 * window):
        streaming.respond("many", tensor("O"), flags=0, number=number)
        streaming.respond("each", tensor("O"))
    assert [window // 2] == streaming.acknowledged_responses[streaming.serials["many"]]
    _read(streaming, 2 * window)

    assert (
        2 * window - window // 2 <= streaming.acknowledged_responses[streaming.serials["many"]][-1]
    )


TAKES: dict[str, Any] = {"parameters": {"FORCE_CPU_ONLY_INPUT_TENSORS": {"string_value": "no"}}}


def _may_stay(world: EnsembleHarness) -> bool:
    """Return True if the first step may leave on a GPU what it makes."""
    world.infer_ensemble(1)
    [work] = world.batched_requests[world.serials["first"]]
    return bool(work.flags & wire.ACCEPTS_GPU)


def test_what_a_step_makes_may_stay_on_a_gpu_for_a_model_that_takes_it() -> None:
    steps = [step("first", {"I": "x"}, {"O": "t"}), step("second", {"I": "t"}, {"O": "y"})]

    assert _may_stay(EnsembleHarness(ensemble(steps), model("first"), model("second", **TAKES)))
    assert not _may_stay(chain())


def test_what_has_several_readers_may_not_since_each_could_write_there() -> None:
    first, second, third = (
        step("first", {"I": "x"}, {"O": "t"}),
        step("second", {"I": "t"}, {"O": "y"}),
        step("third", {"I": "t"}, {"O": "z"}),
    )
    models = [model("first"), model("second", **TAKES), model("third", **TAKES)]

    assert not _may_stay(EnsembleHarness(ensemble([first, second, third], outputs="yz"), *models))
    # The asker is another reader.
    assert not _may_stay(EnsembleHarness(ensemble([first, second], outputs="yt"), *models))


# ------------------------------------------------------------------- limits


@pytest.mark.row("E56")
@pytest.mark.parametrize(
    ("limit", "expected"), [(2, [1, 2, 2, 2, 2, 2, 1, 0]), (0, [1, 2, 3, 4, 3, 2, 1, 0])]
)
def test_a_step_has_no_more_requests_at_once_than_the_ensemble_says(
    limit: int, expected: list[int]
) -> None:
    world = stream(limit).infer_ensemble(1)
    each = next(g for g in world.core.generations.by_number.values() if g.model == "each")

    seen = []
    for number in range(4):
        world.respond("many", tensor("O", b"%d" % number), flags=0, number=number)
        seen.append(each.unanswered)
    world.respond("many", flags=wire.FINAL, number=4)
    while world.busy_models():
        world.respond("each", world.executing_request("each").inputs[0]._replace(name="O"))
        seen.append(each.unanswered)

    assert expected == seen
    assert [b"0", b"1", b"2", b"3"] == [r.outputs[0].data for r in world.responses(1)]
    assert 0 == world.core.limits.unanswered


@pytest.mark.row("E56")
def test_what_waits_for_its_turn_holds_back_the_step_before_it() -> None:
    world = stream(limit=1).infer_ensemble(1)
    window = wire.STREAM_WINDOW

    for number in range(window):
        world.respond("many", tensor("O"), flags=0, number=number)
    assert {} == world.acknowledged_responses

    for _ in range(window):
        world.respond("each", tensor("O"))
    assert window // 2 <= world.acknowledged_responses[world.serials["many"]][-1]


def test_an_error_drops_what_waits_for_its_turn_and_releases_its_memory() -> None:
    world = stream(limit=1).infer_ensemble(1)
    serial = world.serials["many"]
    blocks = [wire.Block(serial, 1, number) for number in (1, 2)]
    for number, block in enumerate(blocks):
        output = tensor("O", wire.Reference(*block, 0, 99_999))
        world.respond("many", output, flags=0, number=number, blocks=[block])

    world.respond_error("each", "no luck")
    world.respond("many", flags=wire.FINAL, number=2)

    assert ["in ensemble 'e', no luck"] == world.error_texts(1)
    assert (blocks, 0) == (sorted(world.released_blocks[serial]), world.core.limits.unanswered)


RESHAPED = {"reshape": {"shape": [2, 2]}}


def reshaped(where: str, *, batch_size: int = 0, model_batch_size: int = 0) -> EnsembleHarness:
    """An ensemble whose callers see four elements in a row, and its step two rows of two."""
    config = ensemble([step("m", {"I": "x"}, {"O": "y"})], max_batch_size=batch_size)
    config[where][0] |= RESHAPED
    return EnsembleHarness(config, model("m", max_batch_size=model_batch_size))


@pytest.mark.row("E31")
def test_the_steps_see_the_inputs_of_an_ensemble_in_its_own_shape() -> None:
    world = reshaped("input")

    world.infer_ensemble(1)

    assert [2, 2] == world.executing_request("m").inputs[0].shape


@pytest.mark.row("E31")
@pytest.mark.parametrize(
    ("batch_size", "model_batch_size", "made", "seen"),
    [
        pytest.param(0, 0, [2, 2], [4], id="no batches"),
        pytest.param(0, 8, [1, 2, 2], [4], id="a batch dimension goes before it gets its shape"),
        pytest.param(8, 0, [2, 2], [1, 4], id="a batch of one is made before it gets its shape"),
    ],
)
def test_those_who_ask_see_its_outputs_in_theirs(
    batch_size: int, model_batch_size: int, made: list[int], seen: list[int]
) -> None:
    world = reshaped("output", batch_size=batch_size, model_batch_size=model_batch_size)
    world.infer_ensemble(1, wire.RequestBody("", {}, [], [tensor("x", shape=seen)]))

    world.respond("m", tensor("O", b"data", shape=made))

    assert seen == world.response(1).outputs[0].shape


# ------------------------------------------------------------------- checks


X = tensor("x", bytes(16))


@pytest.mark.parametrize(
    ("outputs", "inputs", "text"),
    [
        (["nothing"], [X], "unexpected inference output 'nothing' for model 'e'"),
        ([], [tensor("z", bytes(16))], "unexpected inference input 'z' for model 'e', allowed"),
        ([], [], "expected 1 inputs but got 0 inputs for model 'e'"),
        ([], [X, X], "input 'x' already exists in request"),
        ([], [tensor("x", bytes(16), [2, 2])], "unexpected shape for input 'x' for model 'e'"),
        ([], [tensor("x", bytes(4))], "input byte size mismatch for input 'x' for model 'e'"),
        (
            [],
            [tensor("x", wire.Reference(OWNER, 2, 3, 0, 70_000))],
            "input byte size mismatch for input 'x' for model 'e'. Expected 16, got 70000",
        ),
    ],
)
def test_what_a_model_asks_of_an_ensemble_is_checked_as_what_clients_ask(
    outputs: list[str], inputs: list[wire.Tensor], text: str
) -> None:
    world = EnsembleHarness(
        ensemble([step("m", {"I": "x"}, {"O": "y"})]), model("m"), model("asker")
    )
    asker = world.serials["asker"]
    body = wire.RequestBody("", {}, outputs, inputs)

    world.infer(asker, request(1, 0, model="e"), body=wire.encode_body(body))

    [reply] = world.finals(asker, 1)
    where = "Model e - Error when running inference: [request id: <id_unknown>] "
    assert (InvalidArgument.number, True) == (reply.code, reply.text.startswith(where + text))
    assert set() == world.busy_models()


# ------------------------------------------------------------------- windows of bytes


MIB = 1 << 20
IN_WINDOW = wire.STREAM_WINDOW_BYTES // MIB
STEP = IN_WINDOW // 4


@pytest.fixture
def windowed() -> EnsembleHarness:
    """One for a client that reads within a window of bytes."""
    return stream().infer_ensemble(1, flags=wire.BYTE_WINDOW)


def _make(world: EnsembleHarness, numbers: range, size: int = MIB) -> None:
    for number in numbers:
        world.respond("many", tensor("O", bytes(size)), flags=0, number=number)
        world.respond("each", tensor("O", bytes(size)))


def _passed(world: EnsembleHarness) -> int:
    """Return how many responses the stub of the first step was told that count no longer."""
    return max(world.passed_responses.get(world.serials["many"], [0]))


def _read(world: EnsembleHarness, responses: int) -> None:
    world.core.acknowledge(F, wire.StreamAcks([wire.StreamAck(F, 1, responses)]))
    world.drain_outbox()


@pytest.mark.slow
def test_a_step_goes_on_while_its_bytes_come_and_the_client_reads(
    windowed: EnsembleHarness,
) -> None:
    for number in range(4 * IN_WINDOW):
        _make(windowed, range(number, number + 1))
        assert number + 1 - _passed(windowed) < IN_WINDOW
        _read(windowed, number + 1)

    assert 4 * IN_WINDOW - STEP <= _passed(windowed)


def test_the_count_of_responses_waits_for_the_bytes_as_well(windowed: EnsembleHarness) -> None:
    half = wire.STREAM_WINDOW // 2

    _make(windowed, range(half), wire.STREAM_WINDOW_BYTES // half)
    assert half not in windowed.acknowledged_responses[windowed.serials["many"]]
    _read(windowed, 1)
    _make(windowed, range(half, half + 1), 1)

    assert half in windowed.acknowledged_responses[windowed.serials["many"]]


def test_an_ensemble_in_an_ensemble_is_held_back_likewise() -> None:
    decoupled: Any = {"model_transaction_policy": {"decoupled": True}}
    inner = ensemble([step("many", {"I": "x"}, {"O": "y"})], "inner", **decoupled)
    outer = ensemble([step("inner", {"x": "x"}, {"y": "y"})], **decoupled)
    world = EnsembleHarness(outer, inner, model("many", **decoupled))
    body = wire.RequestBody("", {}, [], [tensor("x", bytes(16))])
    world.infer_ensemble(1, body, flags=wire.BYTE_WINDOW)

    def make(numbers: range) -> None:
        for number in numbers:
            world.respond("many", tensor("O", bytes(MIB)), flags=0, number=number)

    make(range(3 * IN_WINDOW))
    before = _passed(world)
    assert before <= 2 * IN_WINDOW
    _read(world, 3 * IN_WINDOW)
    assert before < _passed(world)

    world.respond("many", flags=wire.FINAL, number=3 * IN_WINDOW)
    assert 3 * IN_WINDOW + 1 == len(world.replies[F, 1])
