"""POST /v1/audio/speech: a sound for a text, as the model makes it.

A model's sounds are WAV files of 16 bits. Several responses become one sound: the header of the
first with an open length, and the samples of all.
"""

from __future__ import annotations

import io
import wave
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import falcon.asgi

from zmqtriton.sdk.frontend import Gateway, HttpRequest, json_documents, now_ns, response_encoding
from zmqtriton.sdk.wire import INLINE_BYTES, InternalError, wire
from zmqtriton.sdk.wire import tensors as tensor_values
from zmqtriton_extras.openai.calls import Calls
from zmqtriton_extras.openai.fields import fields_of, model_name, refuse, texts
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.request_tensors import tensor_of
from zmqtriton_extras.openai.tensor_names import TensorNames, names_of

#: Content types by the format that a client names.
_FORMATS = {None: "audio/wav", "wav": "audio/wav", "pcm": "audio/pcm"}
#: Fields for inputs of the same names, if the model has them.
_OPTIONS = ("voice", "instructions")
#: A length that is not known yet, in the header of a WAV file.
_OPEN = b"\xff\xff\xff\xff"


def read(document: Any) -> dict[str, Any]:
    """Return the fields of a request. Raises RefusedField."""
    fields = fields_of(document)
    model_name(fields)
    usual = {"speed": (None, 1), "stream_format": (None, "audio")}
    refuse(fields, {**usual, "response_format": (*_FORMATS,)})
    for name in ("input", *(name for name in _OPTIONS if fields.get(name))):
        [fields[name]] = texts(fields, name, 1)
    return fields


def body_of(fields: dict[str, Any], names: TensorNames) -> wire.RequestBody:
    """Return the request for the model. Raises RefusedField if it makes no sounds."""
    if names.text is None or not names.audio_output:
        tensors = map(names.wanted_name, ("openai_text_input", "openai_audio_output"))
        text = "model '{}' makes no sounds of texts: its input '{}' or its output '{}' is missing"
        raise RefusedField(text.format(names.model, *tensors), "model")
    options = {name: fields[name] for name in _OPTIONS if fields.get(name)}
    values = {**options, names.text.name: fields["input"]}
    targets = filter(None, map(names.input, values))
    inputs = [tensor_of(target, target.name, values[target.name]) for target in targets]
    return wire.RequestBody("", {}, [], inputs)


def open_sound(sound: bytes) -> tuple[bytes, bytes]:
    """Return a header for a sound of any length, and the samples. Raises InternalError."""
    whole = io.BytesIO()
    try:
        with wave.open(io.BytesIO(sound)) as file, wave.open(whole, "wb") as empty:
            empty.setparams(file.getparams())
            empty.writeframes(b"")
            samples = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise InternalError(f"the model must return a WAV file: {error}") from None
    header = whole.getvalue()
    return header[:4] + _OPEN + header[8:40] + _OPEN, samples


class Speech:
    """The responder of speech."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)

    async def speak(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        fields = await self._calls.read(req, read)
        await self._calls.find(req, fields["model"])
        parts = self._parts(req, fields)
        first = await anext(parts, b"")  # an error in its place has a status
        resp.content_type = _FORMATS[fields.get("response_format")]
        resp.stream = _with(first, parts)

    async def _parts(self, req: HttpRequest, fields: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the sound. Raises the model's error."""
        model, kind = self._calls.current(fields["model"]), b""
        names = names_of(model)
        responses = self._calls.begin(req, model, body_of(fields, names), now_ns())
        async with aclosing(responses) as items:
            async for item in items:
                body = item.content() or wire.ResponseBody({}, [])
                size = response_encoding.size_of_response(body)
                if size > INLINE_BYTES:
                    await req.wait_for_room(size)
                sounds = await json_documents.perform(size, _sounds, body, names.audio_output)
                for header, samples in sounds:
                    if kind not in (b"", header):
                        raise InternalError(
                            "all parts of a speech must have the same rate and channels"
                        )
                    has_header = not kind and fields.get("response_format") != "pcm"
                    yield header + samples if has_header else samples
                    kind = header


def _sounds(body: wire.ResponseBody, output: str) -> list[tuple[bytes, bytes]]:
    files = (tensor_values.decode_bytes(each.data) for each in body.outputs if each.name == output)
    return [open_sound(file) for some in files for file in some]


async def _with(first: bytes, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(parts):
        yield first
        async for part in parts:
            yield part
