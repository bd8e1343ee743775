"""Sounds of functions and of streams by OpenAI's route for speech."""

from __future__ import annotations

import http.client
import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.needs import Later
from tests.support.server import Server
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import openai
else:
    openai = Later("openai")

pytestmark = [pytest.mark.system, pytest.mark.extra("openai")]

#: A letter is 100 samples of its number; "!" fails, "~" is of another rate, "*" never ends.
SOURCE = """
import os
import numpy as np
from typing import List
from zmqtriton import Audio, End, Failed, model

def sound(letter):
    return Audio.of(np.full(100, ord(letter) / 32767), 8000 if letter == "~" else 16000)

@model(streams=8)
class Speaking:
    def admit(self, text: str, voice: str = "alto") -> list:
        return [voice[0], *text]

    def step(self, states: list) -> List[Audio]:
        return [self.next(state, place) for place, state in enumerate(states)]

    def next(self, state, place):
        letter = state[0] if state[0] == "*" else state.pop(0)
        if letter == "!":
            return Failed(place, "there is no such sound")
        part = sound(letter)
        return part if state else End(part)

    def leave(self, state):
        open(PLACE, "w").close()
"""
FUNCTION = """
from zmqtriton import Audio, model

@model
def whole(text: str) -> Audio:
    return Audio.of([ord(letter) / 32767 for letter in text], 16000)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("speech")
    directory.chmod(0o777)
    server = Server(directory / "server", options=("--allow-openai",), frontends=())
    server.write_model("speaking", "", SOURCE.replace("PLACE", repr(str(directory / "left"))))
    server.write_model("whole", "", FUNCTION)
    server.write_model("texts", "", FUNCTION.replace("-> Audio", "-> str"))
    with server:
        yield server


@pytest.fixture
def left(server: Server) -> Path:
    """The file that a stream makes which has left."""
    path = server.directory.parent / "left"
    path.unlink(missing_ok=True)
    return path


def letters(samples: bytes) -> str:
    numbers = memoryview(samples).cast("h").tolist()
    return "".join(chr(number) for number in numbers[::100])


def ask(server: Server, **document: Any) -> Any:
    body = json.dumps({"model": "speaking", "input": "ab", **document}).encode()
    return server.exchange("/v1/audio/speech", body)


def test_the_sounds_of_a_stream_are_one_wav_file(server: Server) -> None:
    answer = ask(server, voice="tenor")

    assert (200, "audio/wav") == (answer.status, answer.headers["content-type"])
    with wave.open(io.BytesIO(answer.body)) as file:
        assert (16000, 1, 2) == (file.getframerate(), file.getnchannels(), file.getsampwidth())
        assert "tab" == letters(file.readframes(1000))


def test_samples_alone_are_another_format(server: Server) -> None:
    answer = ask(server, response_format="pcm")

    assert (200, "audio/pcm") == (answer.status, answer.headers["content-type"])
    assert "aab" == letters(answer.body)


def test_a_function_that_returns_a_sound_speaks_too(server: Server) -> None:
    body = ask(server, model="whole", input=100 * "a" + 100 * "b", response_format="pcm").body

    assert "ab" == letters(body)


def test_openais_client_gets_the_parts_as_they_are_made(server: Server, left: Path) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as client:
        create = client.audio.speech.with_streaming_response.create
        with create(model="speaking", input="a*", voice="b", response_format="pcm") as answer:
            parts = answer.iter_bytes(200)
            assert ["b", "a"] == [letters(next(parts)), letters(next(parts))]
            assert not left.exists()

    eventually(left.exists, 60, "the stream has left with its client")


def test_an_error_behind_the_first_part_cuts_the_sound_off(server: Server) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(server, input="a!")
    with pytest.raises(http.client.IncompleteRead):
        ask(server, input="a~")


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        ({"voice": "!"}, None, "there is no such sound"),
        ({"response_format": "mp3"}, "response_format", "'response_format' must be wav or pcm"),
        ({"speed": 2}, "speed", "'speed' must be 1"),
        ({"input": ""}, "input", "'input' must not be empty"),
        ({"model": "none"}, "model", "The model 'none' does not exist"),
    ],
)
def test_an_error_before_it_has_a_status(
    server: Server, document: dict[str, Any], field: str | None, text: str
) -> None:
    answer = ask(server, **document)

    assert answer.status == {None: 500, "model": 404}.get(field, 400)
    error = answer.document["error"]
    assert (field, True) == (error["param"], text in error["message"])


def test_a_model_of_another_kind_says_what_it_lacks(server: Server) -> None:
    answer = ask(server, model="texts")

    assert 400 == answer.status
    assert "'texts' makes no sounds of texts: its input 'text' or its output 'audio'" in str(
        answer.document
    )
