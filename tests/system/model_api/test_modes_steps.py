"""Requests that a model has executed step by step, with real clients."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.scripted import (
    ASYNC,
    DECOUPLED,
    ITERATIVE,
    generate,
    generate_stream,
    open_stream,
)
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

OLDEST = "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 8 } }"
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("scripted", "steps", ITERATIVE),
            Copy("scripted", "streams", OLDEST + DECOUPLED),
            Copy("scripted", "background", OLDEST + DECOUPLED + ASYNC),
            Copy("scripted", "plain"),
            Copy("scripted", "plain_streams", DECOUPLED),
        ]
    ),
]
_REFUSED = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not "
    "configured to handle such a flag."
)
_AGAIN = "request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)"
#: Sends one number a step, down from ARGUMENT; state is kept under the correlation id.
_COUNT = f"""
    key = request.correlation_id()
    left = self.kept[key] = self.kept.get(key, int(text_of(request))) - 1
    sender = request.get_response_sender()
    if left:
        sender.send(reply(left))
        {_AGAIN}
    else:
        del self.kept[key]
        sender.send(reply(left), FINAL)
"""


@pytest.mark.row("A55", "E76")
@pytest.mark.parametrize("model", ["streams", "background"])
def test_a_decoupled_model_answers_step_by_step(server: Server, model: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(
            threads.map(lambda _: generate_stream(server, model, _COUNT, "20"), range(8))
        )

    assert [[str(number) for number in range(19, -1, -1)]] * 8 == answers


@pytest.mark.row("A55", "E76")
def test_default_mode_answers_with_the_last_step(server: Server) -> None:
    script = f"""
        steps = self.kept.setdefault("steps", [])
        steps.append([request.flags(), request.correlation_id() != 0])
        if len(steps) < 4:
            {_AGAIN}
            return [None]
        import json
        return [reply(json.dumps(self.kept.pop("steps")))]
    """

    # START on the first one only; and with one slot sequences do not mix.
    expected = [[1, True], [0, True], [0, True], [0, True]]
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda _: generate(server, "steps", script), range(4)))
    assert [expected] * 4 == [json.loads(text) for text in texts]


@pytest.mark.row("A55")
def test_a_sender_of_an_earlier_step_may_be_kept(server: Server) -> None:
    script = f"""
        sender = self.kept.setdefault("sender", request.get_response_sender())
        self.kept["n"] = self.kept.get("n", 0) + 1
        if self.kept["n"] < 3:
            {_AGAIN}
            return
        sender.send(reply(self.kept.pop("n")))
        del self.kept["sender"], sender
    """

    first, end = generate_stream(server, "streams", script)

    assert "3" == first
    assert end.endswith("The model let go of a response sender without the FINAL flag.")


@pytest.mark.row("A55")
def test_a_response_for_a_rescheduled_request_is_refused(server: Server) -> None:
    assert generate(server, "steps", f"{_AGAIN}\nreturn [reply('x')]").startswith(
        "Failed to process the request(s) for model 'steps_0_0', message: Expected a None object "
        "in the execute function return list for reschduled request, found type '<class '"
    )


@pytest.mark.row("A55")
def test_other_models_may_not_reschedule(server: Server) -> None:
    prefix = "Failed to process the request(s) for model 'plain_0_0', message: "

    assert prefix + _REFUSED == generate(server, "plain", f"{_AGAIN}\nreturn [None]")


@pytest.mark.row("A55")
def test_a_stream_that_may_not_be_rescheduled_goes_on(server: Server) -> None:
    script = f"""
        import threading, time
        def later(sender=request.get_response_sender()):
            time.sleep(0.2)
            sender.send(reply("later"), FINAL)
        threading.Thread(target=later).start()
        {_AGAIN}
    """

    assert ["later"] == generate_stream(server, "plain_streams", script)
    eventually(lambda: f"message: {_REFUSED}" in server.log_text(), 30, "it is logged")


@pytest.mark.row("A55")
def test_an_exception_ends_what_asked_to_be_executed_again(server: Server) -> None:
    for model in ("streams", "background"):
        [text] = generate_stream(server, model, f"{_AGAIN}\nraise ValueError('amid')")

        assert "message: ValueError: amid" in text


@pytest.mark.row("A55")
def test_a_request_whose_client_left_is_not_executed_again(server: Server) -> None:
    script = f"""
        import time
        time.sleep(0.01)
        print("step of " + text_of(request), flush=True)
        {_AGAIN}
    """
    with open_stream(server, "steps", script + "\n        return [None]", "left"):
        eventually(lambda: 'step of left"' in server.log_text(), 30, "its first step")

    # Its slot is free: another one gets through.
    assert "on" == generate(server, "steps", "return [reply('on')]")
    assert ["1", "0"] == generate_stream(server, "streams", _COUNT, "2")
