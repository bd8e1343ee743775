"""The fields of a transcription, and the length of its sound, as the form is read."""

from __future__ import annotations

import io
import struct
import wave

import pytest

from zmqtriton_extras.openai.transcriptions import Transcription, read


def wav(*, seconds: int = 2, channels: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as target:
        target.setparams((channels, 2, 1000, 0, "NONE", ""))
        target.writeframes(bytes(seconds * channels * 2 * 1000))
    return file.getvalue()


def transcription(sound: bytes, **fields: str) -> Transcription:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in {"model": "m", **fields}.items()
    ]
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    form = b"".join([*parts, head, sound, b"\r\n--x--\r\n"])
    return read("multipart/form-data; boundary=x", memoryview(bytearray(form)))


def with_open_length(sound: bytes) -> bytes:
    return sound[:40] + b"\xff\xff\xff\xff" + sound[44:]


def with_chunk(sound: bytes) -> bytes:
    return sound[:12] + struct.pack("<4sI", b"LIST", 3) + bytes(4) + sound[12:]


@pytest.mark.parametrize(
    ("sound", "seconds"),
    [
        (wav(), 2),
        (wav(channels=1, seconds=3), 3),
        (with_open_length(wav()), 2),
        (wav()[:4044], 1),
        (with_chunk(wav()), 2),
        # without an end of the search a file of small chunks takes seconds
        (wav()[:12] + 100 * struct.pack("<4sI", b"LIST", 0) + wav()[12:], None),
        (wav()[:36], None),
        (wav()[:12] + wav()[36:], None),
        (wav().replace(b"WAVE", b"AVI "), None),
        (b"RIFF", None),
        (b"", None),
    ],
)
def test_the_length_of_a_sound_is_that_of_its_wav_file(sound: bytes, seconds: int | None) -> None:
    assert seconds == transcription(sound, response_format="verbose_json").seconds
