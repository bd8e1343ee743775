"""POST /v1/audio/transcriptions: the text of a sound, as the model makes it.

The request is a form. Its sound goes to the model unchanged, without a copy of the body.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import falcon.asgi
import orjson

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpRequest,
    ModelVersion,
    json_documents,
    now_ns,
    response_encoding,
)
from zmqtriton.sdk.wire import INLINE_BYTES, InvalidArgument, datatypes, numbers, wire
from zmqtriton.sdk.wire import tensors as tensor_values
from zmqtriton_extras.openai import problems
from zmqtriton_extras.openai.calls import Calls, as_it_is
from zmqtriton_extras.openai.fields import model_name, refuse
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.request_tensors import shape_of_one, tensor_of
from zmqtriton_extras.openai.tensor_names import TensorNames, names_of
from zmqtriton_extras.routes.backend.multipart import RefusedError, element_of, parts_of
from zmqtriton_standard.generate.response import Events

_SOUND = "file"
#: Fields for inputs of the same names, if the model has them.
_OPTIONS = ("language", "prompt", "temperature")
_FLAGS = {None: False, "false": False, "true": True}
#: Values of the fields that are answered to; all other values are refused.
_ACCEPTED = {
    "stream": (*_FLAGS,),
    "response_format": (None, "json", "text", "verbose_json"),
    "chunking_strategy": (None, "auto"),
    "include[]": (None,),
    # as OpenAI's default, which clients send; segments are optional
    "timestamp_granularities[]": (None, "segment"),
}
_MAX_FIELD_BYTES = 64 << 10
#: Chunks of a WAV file that are searched for its samples.
_MAX_CHUNKS = 64


class Transcription(NamedTuple):
    """A request."""

    model: str
    #: The sound with its length in front of it, as the element of a tensor.
    sound: Any
    options: dict[str, Any]
    is_streamed: bool
    format: str
    #: Length of the sound, if the format has it and the sound is a WAV file.
    seconds: float | None


def read(content_type: str, body: memoryview) -> Transcription:
    """Return the request that a form describes. Raises RefusedField."""
    fields: dict[str, Any] = {}
    sound = None
    try:
        for part in parts_of(content_type, body):
            if part.name == _SOUND:
                sound = element_of(part, body)
            elif part.end - part.begin <= _MAX_FIELD_BYTES:
                fields[part.name] = str(body[part.begin : part.end], "utf-8")
            else:
                raise RefusedField(
                    f"'{part.name}' can have at most {_MAX_FIELD_BYTES} bytes", part.name
                )
    except RefusedError as error:
        raise RefusedField(error.args[1], "") from None
    except UnicodeDecodeError:
        raise RefusedField("the fields of the form must be UTF-8", "") from None
    model = model_name(fields)
    if sound is None:
        raise RefusedField(f"'{_SOUND}' must be an audio file", _SOUND)
    refuse(fields, _ACCEPTED)
    options = {name: fields[name] for name in _OPTIONS if fields.get(name)}
    if "temperature" in options:
        options["temperature"] = _temperature(options["temperature"])
    kind = fields.get("response_format", "json")
    seconds = _seconds(memoryview(sound)[4:]) if kind == "verbose_json" else None
    return Transcription(model, sound, options, _FLAGS[fields.get("stream")], kind, seconds)


def _seconds(sound: memoryview) -> float | None:
    """Return the length of a WAV file of any encoding; None for another file."""
    if (bytes(sound[:4]), bytes(sound[8:12])) != (b"RIFF", b"WAVE"):
        return None
    at, rate = 12, 0
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(sound):
            break
        kind, size = struct.unpack_from("<4sI", sound, at)
        at += 8
        if kind == b"data":
            # writers of streams leave the size open: it is beyond the end
            return min(size, len(sound) - at) / rate if rate else None
        if kind == b"fmt " and at + 12 <= len(sound):
            (rate,) = struct.unpack_from("<I", sound, at + 8)
        at += size + size % 2
    return None


def _temperature(text: str) -> float:
    try:
        return numbers.number("temperature", numbers.in_text(text), 0, 1)
    except InvalidArgument as error:
        raise RefusedField(error.text, "temperature") from None


def body_of(request: Transcription, names: TensorNames) -> wire.RequestBody:
    """Return the request for the model. Raises RefusedField if it does not transcribe sounds."""
    if names.audio is None or not names.text_output:
        tensors = map(names.wanted_name, ("openai_audio_input", "openai_text_output"))
        text = "model '{}' makes no texts of sounds: its input '{}' or its output '{}' is missing"
        raise RefusedField(text.format(names.model, *tensors), "model")
    sound = wire.Tensor(names.audio.name, datatypes.BYTES, shape_of_one(names.audio), request.sound)
    options = [
        tensor_of(target, name, value)
        for name, value in request.options.items()
        if (target := names.input(name)) is not None
    ]
    return wire.RequestBody("", {}, [], [sound, *options])


class Transcriptions:
    """The responder of transcriptions."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)

    async def transcribe(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        with await self._calls.receive(req) as form:
            kind = req.header(b"content-type") or ""
            request = await json_documents.perform(len(form), read, kind, memoryview(form))
            model = await self._calls.find(req, request.model)
            names = names_of(model)
            body = body_of(request, names)
            pieces = self._pieces(req, model, body, names.text_output, begun_ns)
            del body
            if request.is_streamed:
                events = _events(pieces)
                first = await anext(events)  # an error in its place has a status
                resp.content_type = "text/event-stream; charset=utf-8"
                resp.stream = Events(
                    first, events, as_it_is, problems.event, turn=req.turn, made=req.made
                )
                return
            text = "".join([piece async for piece in pieces])
        if request.format == "text":
            resp.content_type = "text/plain; charset=utf-8"
            resp.data = text.encode() + b"\n"
            return
        document: dict[str, Any] = {"text": text}
        if request.format == "verbose_json":
            # the schema wants the language and the length, and no segments
            language = request.options.get("language", "")
            document |= {"task": "transcribe", "language": language, "duration": request.seconds}
        resp.data = await json_documents.perform(len(text), orjson.dumps, document)

    async def _pieces(
        self,
        req: HttpRequest,
        model: ModelVersion,
        body: wire.RequestBody,
        output: str,
        begun_ns: int,
    ) -> AsyncGenerator[str, None]:
        """Yield the parts of the text. Raises the model's error."""
        # a character may be cut between two responses
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        responses = self._calls.begin(req, model, body, begun_ns)
        del body
        async with aclosing(responses) as items:
            async for item in items:
                if (answer := item.content()) is None:
                    continue
                size = response_encoding.size_of_response(answer)
                if size > INLINE_BYTES:
                    await req.wait_for_room(size)
                data = await json_documents.perform(size, _texts, answer, output)
                if piece := decoder.decode(data):
                    yield piece
        if rest := decoder.decode(b"", True):
            yield rest


def _texts(body: wire.ResponseBody, output: str) -> bytes:
    texts = (tensor_values.decode_bytes(each.data) for each in body.outputs if each.name == output)
    return b"".join(text for some in texts for text in some)


async def _events(pieces: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
    whole = []
    async with aclosing(pieces):
        async for piece in pieces:
            whole.append(piece)
            yield _event("delta", delta=piece)
    yield _event("done", text="".join(whole))


def _event(kind: str, **members: str) -> bytes:
    return b"data: %b\n\n" % orjson.dumps({"type": f"transcript.text.{kind}", **members})
