from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.execution.implicit_state import States
from zmqtriton_stub.execution.responses import InferenceResponseSender, Pending

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_DROPPED = (
    "Failed to process the request(s) for model 'm_0_0', message: The model let go of a request "
    "without a response to it."
)


def _response(name: str = "OUT") -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.zeros(1, np.uint8))])


def _sender(link: FakeLink) -> InferenceResponseSender:
    return link.add_request(body()).make_sender()


def _refusal(sender: InferenceResponseSender, *arguments: Any) -> str:
    return refusal(pb_utils.TritonModelException, sender.send, *arguments)


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


def test_progress_is_told_where_a_client_follows_it_and_only_what_is_new(link: FakeLink) -> None:
    pending = link.add_request(body())
    request = pb_utils.InferenceRequest("", 0, [], [], "m")
    request.progress(0.1)  # one to another model
    request._pending = pending

    request.progress(0.2)
    pending.work = pending.work._replace(flags=wire.WANT_STAGES)
    for share in (-1, 0.4, 0.4, 7):
        request.progress(share)
    pending.make_sender().send(_response())
    request.progress(0.5)

    sent = [message for message, _ in link.messages if isinstance(message, wire.Progress)]
    assert [wire.Progress(3, 5, 400), wire.Progress(3, 5, 1000)] == sent


@pytest.mark.parametrize("flags", [0, FINAL])
def test_in_default_mode_the_first_response_is_the_final_one(link: FakeLink, flags: int) -> None:
    _sender(link).send(_response(), flags)

    assert link.outcomes() == [wire.Outcome(3, 5, 0, "", wire.FINAL)]
    assert wire.decode_response(link.messages[0][1][0]).outputs[0].name == "OUT"
    assert link.pending == {}


def test_in_default_mode_the_final_flag_after_the_response_sends_nothing_more(
    link: FakeLink,
) -> None:
    sender = _sender(link)

    sender.send(_response())
    sender.send(flags=FINAL)

    assert len(link.messages) == 1


def test_in_default_mode_there_is_at_most_one_response() -> None:
    sender = _sender(FakeLink())
    sender.send(_response())

    assert _refusal(sender, _response()) == (
        "Unable to send response. Non-decoupled model cannot send more than one response."
    )


def test_in_default_mode_final_alone_is_no_answer() -> None:
    sender = _sender(FakeLink())

    assert _refusal(sender, None, FINAL) == (
        "Unable to send response. Non-decoupled model cannot send complete final before sending a "
        "response."
    )


def test_arguments_of_send_are_checked_first() -> None:
    sender = _sender(FakeLink())

    assert _refusal(sender) == (
        "Inference Response object must be provided when the response flags is set to zero."
    )
    assert _refusal(sender, _response(), 2) == (
        "Unable to send response. Unsupported flag provided."
    )
    with pytest.raises(TypeError):
        sender.send("text")  # type: ignore[arg-type]


def test_in_decoupled_mode_responses_flow_until_final() -> None:
    link = FakeLink(is_decoupled=True)
    sender = _sender(link)

    sender.send(_response())
    sender.send(_response())
    sender.send(flags=FINAL)

    assert [outcome.flags for outcome in link.outcomes()] == [0, 0, wire.FINAL]
    assert link.messages[2][1] == [b""]
    assert _refusal(sender, _response()) == (
        "Unable to send response. Response sender has been closed."
    )


def test_a_sender_that_is_dropped_unused_is_an_error_in_default_mode(link: FakeLink) -> None:
    sender = _sender(link)
    del sender

    assert link.outcomes() == [wire.Outcome(3, 5, 2, _DROPPED, wire.FINAL)]
    assert [(type(said), said.level) for said in link.sent_to_supervisor] == [(wire.LogLine, "W")]


def test_a_sender_that_is_dropped_after_its_response_says_nothing(link: FakeLink) -> None:
    _sender(link).send(_response())
    gc.collect()

    assert (1, []) == (len(link.messages), link.sent_to_supervisor)


def test_a_stream_that_is_dropped_ends_with_a_warning() -> None:
    link = FakeLink(is_decoupled=True)

    sender = _sender(link)
    sender.send(_response())
    del sender

    assert [(o.code, o.flags) for o in link.outcomes()] == [(0, 0), (0, wire.FINAL)]
    assert len(link.sent_to_supervisor) == 1


def test_nothing_is_sent_when_the_process_is_over(link: FakeLink) -> None:
    sender = _sender(link)

    link.is_closed = True
    del sender

    assert link.messages == []


def test_an_error_keeps_its_code_and_drops_tensors(link: FakeLink) -> None:
    error = pb_utils.TritonError("not now", pb_utils.TritonError.UNAVAILABLE)

    _sender(link).send(pb_utils.InferenceResponse(_response().output_tensors(), error))

    assert link.outcomes() == [wire.Outcome(3, 5, 5, "not now", wire.FINAL)]
    assert link.messages[0][1] == [b""]


def test_only_the_outputs_that_were_asked_for_are_sent(link: FakeLink) -> None:
    pending = link.add_request(body(outputs=["B"]))
    pending.outputs = ["B"]
    tensors = [*_response("A").output_tensors(), *_response("B").output_tensors()]

    pending.make_sender().send(pb_utils.InferenceResponse(tensors, parameters={"p": "q"}))

    sent = wire.decode_response(link.messages[0][1][0])
    assert ([tensor.name for tensor in sent.outputs], sent.parameters) == (["B"], {"p": "q"})


def test_a_response_that_cannot_be_sent_leaves_the_sender_open(link: FakeLink) -> None:
    sender = _sender(link)
    too_big = pb_utils.InferenceResponse(parameters={"n": 2**64})

    with pytest.raises(OverflowError):
        sender.send(too_big)
    sender.send(_response())

    assert [outcome.code for outcome in link.outcomes()] == [0]


def test_long_and_broken_texts_are_made_fit_to_travel(link: FakeLink) -> None:
    _sender(link).send(
        pb_utils.InferenceResponse(error=pb_utils.TritonError("\udc80" + "x" * 100_000))
    )

    [outcome] = link.outcomes()
    assert outcome.text == "?" + "x" * 65_535


@pytest.fixture
def withdrawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The answers whose memory was freed again."""
    answers: list[Any] = []
    monkeypatch.setattr(Pending, "withdraw", lambda _, answer: answers.append(answer))
    return answers


def test_a_response_that_is_refused_gives_back_its_memory(withdrawn: list[Any]) -> None:
    sender = _sender(FakeLink())

    sender.send(_response())
    assert [] == withdrawn
    _refusal(sender, _response())

    assert 1 == len(withdrawn)


def test_a_response_to_what_is_answered_gives_back_its_memory_and_is_not_sent(
    link: FakeLink,
    withdrawn: list[Any],
) -> None:
    pending = link.add_request(body())
    sender = pending.make_sender()
    pending.reschedule()
    pending.cancel()

    sender.send(_response())

    assert [] == link.messages
    assert 1 == len(withdrawn)


def test_only_a_response_that_leaves_changes_the_states_of_its_sequence(link: FakeLink) -> None:
    entry = {"input_name": "BEFORE", "output_name": "AFTER", "data_type": "TYPE_UINT8"}
    link.instance.states = States({"sequence_batching": {"state": [{**entry, "dims": [1]}]}}, "")
    pending = link.add_request(body())
    pending.states = {"BEFORE": wire.Tensor("BEFORE", BY_NAME["UINT8"].number, [1], b"\1")}
    sender = pending.make_sender()

    for value in (2, 3):
        tensor = pb_utils.Tensor("AFTER", np.array([value], np.uint8))
        with suppress(pb_utils.TritonModelException):  # there is one response only
            sender.send(pb_utils.InferenceResponse([tensor]))

    assert b"\2" == bytes(pending.states["BEFORE"].data)
