"""Texts of sounds, by functions and by streams, over OpenAI's route for transcriptions."""

from __future__ import annotations

import hashlib
import io
import json
import random
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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

WORDS = "timestamp_granularities[]"
#: A letter for each sample; "!" fails, "*" never ends.
STREAM = """
from typing import List
from zmqtriton import Audio, End, Failed, model

@model(streams=8)
class Hearing:
    def admit(self, audio: Audio, language: str = "en", temperature: float = 0.5) -> list:
        letters = [chr(round(sample * 32767)) for sample in audio.samples[:, 0]]
        return [f"{language} {temperature} ", *letters]

    def step(self, states: list) -> List[str]:
        return [self.next(state, place) for place, state in enumerate(states)]

    def next(self, state, place):
        letter = state[0] if state[0] == "*" else state.pop(0)
        if letter == "!":
            return Failed(place, "nobody understands that")
        return letter if state else End(letter)

    def leave(self, state):
        open(PLACE, "w").close()
"""
FUNCTION = """
from zmqtriton import Audio, model

@model
def whole(sound: Audio, prompt: str = "") -> str:
    return prompt + "".join(chr(round(sample * 32767)) for sample in sound.samples[:, 0])
"""
DIGEST = """
import hashlib
from zmqtriton import File, model

@model
def digest(audio: File) -> str:
    return hashlib.sha256(audio.data).hexdigest()
"""
DIGEST_CONFIG = """
parameters { key: "openai_text_output" value { string_value: "output" } }
"""
#: A class with `execute`: a character lies in two responses.
CLASS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sound = pb_utils.get_input_tensor_by_name(request, "WAV").as_numpy().flat[0]
            for part in (b"\\xc3", b"\\xa9 %d" % len(sound), b"\\xc3"):
                text = np.array([part], np.object_)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CONFIG = """
backend: "python"
input { name: "WAV" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }
model_transaction_policy { decoupled: true }
parameters { key: "openai_audio_input" value { string_value: "WAV" } }
parameters { key: "openai_text_output" value { string_value: "TEXT" } }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("hearing")
    directory.chmod(0o777)
    server = Server(directory / "server", options=("--allow-openai",), frontends=())
    server.write_model("hearing", "", STREAM.replace("PLACE", repr(str(directory / "left"))))
    server.write_model("whole", "", FUNCTION)
    server.write_model("digest", DIGEST_CONFIG, DIGEST)
    server.write_model("class", CONFIG, CLASS)
    server.write_model("sounds", "", FUNCTION.replace("-> str", "-> Audio"))
    with server:
        yield server


@pytest.fixture
def left(server: Server) -> Path:
    """The file that a stream makes which has left."""
    path = server.directory.parent / "left"
    path.unlink(missing_ok=True)
    return path


def sound(letters: str, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as target:
        target.setparams((1, width, 16000, 0, "NONE", ""))
        target.writeframes(b"".join(ord(each).to_bytes(width, "little") for each in letters))
    return file.getvalue()


def form(file: bytes | None, **fields: str) -> tuple[bytes, str]:
    parts = [
        f'--mark\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    if file is not None:
        head = b'--mark\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        parts.insert(1, head + file + b"\r\n")
    return b"".join(parts) + b"--mark--\r\n", "multipart/form-data; boundary=mark"


def ask(server: Server, file: bytes | None, **fields: str) -> Any:
    body, kind = form(file, **{"model": "hearing", **fields})
    return server.exchange("/v1/audio/transcriptions", body, headers={"Content-Type": kind})


def events(answer: Any) -> list[Any]:
    lines = answer.body.decode().split("\n\n")
    assert lines.pop() == ""
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_openais_client_gets_the_text_of_a_sound(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as client:
        create = client.audio.transcriptions.create
        file = ("a.wav", sound("hello"))
        assert "en 0.5 hello" == create(model="hearing", file=file).text
        plain = create(model="whole", file=file, prompt="so ", response_format="text")
        assert "so hello\n" == plain
        parts: list[Any] = [
            *create(model="hearing", file=file, language="de", temperature=0.25, stream=True)
        ]

    assert ["de 0.25 ", *"hello"] == [part.delta for part in parts[:-1]]
    assert ("transcript.text.done", "de 0.25 hello") == (parts[-1].type, parts[-1].text)


def test_a_verbose_text_has_the_language_and_the_length_of_its_sound(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as client:
        answer = client.audio.transcriptions.create(
            model="hearing",
            file=("a.wav", sound("hello")),
            language="de",
            response_format="verbose_json",
            timestamp_granularities=["segment"],
        )

    assert ("de 0.5 hello", "de", 5 / 16000) == (answer.text, answer.language, answer.duration)
    assert answer.segments is None
    verbose = {"response_format": "verbose_json"}
    expected = {"task": "transcribe", "text": "a", "language": "", "duration": 1 / 16000}
    assert expected == ask(server, sound("a"), model="whole", **verbose).document
    other = ask(server, b"ID3 no WAV", model="digest", **verbose).document
    assert ("", None) == (other["language"], other["duration"])


@pytest.mark.parametrize("size", [10, 300_000, 6_000_000])
def test_a_sound_of_any_size_comes_as_it_was_sent(server: Server, size: int) -> None:
    # several at a time, and again later: each is given back, and none is another one's
    files = [random.Random(number).randbytes(size) for number in range(8)]

    def one(file: bytes) -> str:
        return str(ask(server, file, model="digest").document["text"])

    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            digests = [hashlib.sha256(file).hexdigest() for file in files]
            assert digests == list(threads.map(one, files))


def test_a_character_may_be_cut_between_two_responses(server: Server) -> None:
    file = sound("abc")
    answer = ask(server, file, model="class", stream="true")

    assert (200, "text/event-stream; charset=utf-8") == (
        answer.status,
        answer.headers["content-type"],
    )
    pieces = [f"é {len(file)}", "�"]
    assert [*pieces, "".join(pieces)] == [e.get("delta") or e["text"] for e in events(answer)]
    assert {"text": "".join(pieces)} == ask(server, file, model="class").document


def test_a_stream_leaves_with_its_client(server: Server, left: Path) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as client:
        file = ("a.wav", sound("a*"))
        create = client.audio.transcriptions.create
        with create(model="hearing", file=file, stream=True) as answer:
            parts: Any = iter(answer)
            assert ["a", "*"] == [next(parts).delta for _ in range(3)][1:]
            assert not left.exists()

    eventually(left.exists, 60, "the stream has left with its client")


def test_an_error_behind_the_first_part_is_the_last_event(server: Server) -> None:
    first, *_, last = events(ask(server, sound("a!"), stream="true"))

    assert "transcript.text.delta" == first["type"]
    assert "nobody understands that" in last["error"]["message"]


@pytest.mark.parametrize(
    ("file", "fields", "field", "text"),
    [
        (b"RIFF", {"model": "whole"}, None, "expected a sound in a WAV file"),
        (sound("ab", 1), {"model": "whole"}, None, "expected a sound of 16 bits, got 8"),
        (None, {}, "file", "'file' must be an audio file"),
        (b"", {"model": ""}, "model", "'model' must be the name of a model"),
        (b"", {"model": "none"}, "model", "The model 'none' does not exist"),
        (
            b"",
            {"response_format": "srt"},
            "response_format",
            "'response_format' must be json, text or verbose_json",
        ),
        (b"", {"stream": "yes"}, "stream", "'stream' must be false or true"),
        (b"", {WORDS: "word"}, WORDS, f"'{WORDS}' must be segment"),
        (b"", {"include[]": "logprobs"}, "include[]", "'include[]' is not supported"),
        (b"", {"temperature": "2"}, "temperature", "'temperature' must be a number from 0 to 1"),
        (b"", {"temperature": "nan"}, "temperature", "'temperature' must be a number from 0 to 1"),
        (b"", {"prompt": 70_000 * "a"}, "prompt", "'prompt' can have at most 65536 bytes"),
        (
            b"",
            {"model": "sounds"},
            "model",
            "'sounds' makes no texts of sounds: its input 'sound' or its output 'text_output'",
        ),
    ],
)
def test_wrong_requests_say_what_is_wrong(
    server: Server, file: bytes | None, fields: dict[str, str], field: str | None, text: str
) -> None:
    for stream in ({}, {"stream": "true"}):
        answer = ask(server, file, **{**stream, **fields})

        expected = 404 if "none" in fields.values() else 400
        error = answer.document["error"]
        assert (expected, field, True) == (answer.status, error["param"], text in error["message"])


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"{}", "application/json", "expects a form"),
        (b"--mark", "multipart/form-data; boundary=mark", "the form is cut off"),
        (b"--mark--", "multipart/form-data", "needs a boundary"),
        (form(b"", model="\xff")[0].replace("\xff".encode(), b"\xff"), form(b"")[1], "UTF-8"),
    ],
)
def test_what_is_no_form_is_refused(server: Server, body: bytes, kind: str, text: str) -> None:
    headers = {"Content-Type": kind}
    answer = server.exchange("/v1/audio/transcriptions", body, headers=headers)

    assert (400, True) == (answer.status, text in answer.document["error"]["message"])
