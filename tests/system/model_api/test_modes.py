"""Classes and return values of models, in default and in decoupled mode, with real clients."""

from __future__ import annotations

import json

import pytest

from tests.support.scraping import sum_series
from tests.support.scripted import DECOUPLED, generate, generate_stream, open_stream
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("scripted", "plain", "max_batch_size: 4\ndynamic_batching {}\n"),
            Copy("scripted", "streams", DECOUPLED),
        ]
    ),
]

_FAILED = "Failed to process the request(s) for model '{}_0_0', message: "
_PLAIN = _FAILED.format("plain")
_STREAMS = _FAILED.format("streams")
_LET_GO = "The model let go of a request without a response to it."
_NO_END = "The model let go of a response sender without the FINAL flag."


@pytest.mark.row("A20", "A22")
def test_a_model_sees_its_name_its_place_and_its_arguments(server: Server) -> None:
    script = "import json, sys\nseen = type(self).__module__, sys.path[-2:], self.args\n"
    script += "return [reply(json.dumps(seen))]"

    module, path, args = json.loads(generate(server, "plain", script))

    directory = str(server.repository / "plain")
    assert "1.model" == module
    assert [f"{directory}/1", directory] == path
    config = json.loads(args.pop("model_config"))
    assert ("plain", 4) == (config["name"], config["max_batch_size"])
    assert {
        "model_instance_kind": "CPU",
        "model_instance_name": "plain_0_0",
        "model_instance_device_id": "0",
        "model_repository": directory,
        "model_version": "1",
        "model_name": "plain",
    } == args


@pytest.mark.row("A23", "A53")
@pytest.mark.parametrize("returned", ["None", "[None]"])
def test_default_mode_may_answer_through_the_sender(server: Server, returned: str) -> None:
    script = f"request.get_response_sender().send(reply('sent'), FINAL)\nreturn {returned}"

    assert "sent" == generate(server, "plain", script)


_SEND_ALL = """
for one in requests:
    one.get_response_sender().send(reply(text_of(one)), FINAL)
"""


@pytest.mark.row("A25")
def test_an_exception_in_decoupled_mode_closes_what_is_open(server: Server) -> None:
    script = """
        sender = request.get_response_sender()
        sender.send(reply("one"))
        self.kept["failed"] = sender
        raise ValueError("late")
    """

    [first, error] = generate_stream(server, "streams", script)

    assert "one" == first
    assert error.startswith(f"{_STREAMS}ValueError: late\n\nAt:\n")
    closed = "try:\n    self.kept['failed'].send(reply('more'))\nexcept Exception as error:\n"
    closed += "    request.get_response_sender().send(reply(error), FINAL)"
    text = "Unable to send response. Response sender has been closed."
    assert [text] == generate_stream(server, "streams", closed)


@pytest.mark.row("A74")
def test_a_request_that_default_mode_forgets_is_an_error(server: Server) -> None:
    assert _PLAIN + _LET_GO == generate(server, "plain", "return None")

    eventually(lambda: _logged(server, "W", _PLAIN + _LET_GO), 30, "a warning")


@pytest.mark.row("A74")
def test_a_sender_that_decoupled_mode_forgets_fails_its_stream(server: Server) -> None:
    def failures() -> float:
        return sum_series(server, "nv_inference_request_failure", model="streams")

    before = failures()
    assert ["one", _STREAMS + _NO_END] == generate_stream(
        server, "streams", "request.get_response_sender().send(reply('one'))"
    )

    eventually(lambda: failures() == before + 1, 30, "it is counted")

    text = "model 'streams_0_0' let go of a response sender without the FINAL flag"
    eventually(lambda: _logged(server, "W", text), 30, "a warning")


@pytest.mark.row("A74")
@pytest.mark.parametrize(
    ("model", "ends"), [("plain", [_PLAIN + _LET_GO]), ("streams", [_STREAMS + _NO_END])]
)
def test_a_sender_in_a_circle_of_garbage_ends_its_request_too(
    server: Server, model: str, ends: list[str]
) -> None:
    script = "circle = [request.get_response_sender()]\ncircle.append(circle)"

    assert ends == generate_stream(server, model, script)


def _logged(server: Server, level: str, text: str) -> bool:
    return any(line.startswith(level) and text in line for line in server.log_text().splitlines())


@pytest.mark.row("A54", "A73", "C33")
@pytest.mark.parametrize("model", ["plain", "streams"])
@pytest.mark.parametrize("where", ["request", "request.get_response_sender()"])
def test_a_cancellation_reaches_code_that_is_busy(server: Server, model: str, where: str) -> None:
    script = f"""
        import time
        print("begun " + text_of(request), flush=True)
        one, end = {where}, time.monotonic() + 30
        while not one.is_cancelled() and time.monotonic() < end:
            sum(range(10_000))
        print(f"cancelled {{text_of(request)}} {{one.is_cancelled()}}", flush=True)
        request.get_response_sender().send(reply("unread"), FINAL)
    """
    name = f"busy {model} {where}"
    with open_stream(server, model, script, name):
        eventually(lambda: f'begun {name}"' in server.log_text(), 30, "it is executed")

    eventually(lambda: f"cancelled {name} True" in server.log_text(), 30, "it was seen")
    assert ["on"] == generate_stream(server, model, _SEND_ALL, "on")
