"""POST /v1/embeddings: texts in, a vector for each out.

Texts share inferences if the model takes several at once. Only some inferences run at a time, so
that the model can batch them, but one client cannot fill its queue.
"""

from __future__ import annotations

import asyncio
import base64
import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import falcon.asgi
import numpy as np
import orjson

from zmqtriton.sdk.frontend import Gateway, HttpRequest, json_documents, now_ns
from zmqtriton.sdk.wire import InternalError, datatypes, signature, wire
from zmqtriton.sdk.wire import tensors as tensor_values
from zmqtriton_extras.openai.calls import Calls, together
from zmqtriton_extras.openai.choices import count_tokens, estimate_tokens
from zmqtriton_extras.openai.fields import fields_of, model_name, texts
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.tensor_names import TensorNames, names_of

#: Inferences of one request that run together.
_AT_ONCE = 64
#: Bytes that an element may become in JSON.
_WRITTEN_BYTES = 12
#: Texts of one request, as with OpenAI.
MAX_TEXTS = 2048
_FORMATS = ("float", "base64")


class EmbeddingRequest(NamedTuple):
    model: str
    texts: list[str]
    is_base64: bool


def read(document: Any) -> EmbeddingRequest:
    """Read the document of a request. Raises RefusedField."""
    fields = fields_of(document)
    encoding = fields.get("encoding_format") or "float"
    if encoding not in _FORMATS:
        raise RefusedField(
            f"'encoding_format' must be one of {', '.join(_FORMATS)}", "encoding_format"
        )
    if fields.get("dimensions") is not None:
        raise RefusedField("'dimensions' is not supported; leave it out", "dimensions")
    name = model_name(fields)
    return EmbeddingRequest(
        name, texts(fields, "input", MAX_TEXTS, may_be_empty=True), encoding == "base64"
    )


class Batch:
    """The texts of a single inference, and its outcome."""

    def __init__(self, names: TensorNames, own_texts: Sequence[str]) -> None:
        self._names = names
        self._texts = own_texts
        self._arrays: list[Any] = []
        self._tokens: int | None = None

    @property
    def tokens(self) -> int:
        if self._tokens is not None:
            return self._tokens
        return sum(estimate_tokens(len(text.encode())) for text in self._texts)

    @property
    def size(self) -> int:
        """Return the number of elements that have arrived."""
        return sum(map(len, self._arrays))

    def body(self, own_id: str) -> wire.RequestBody:
        """Return the request."""
        declaration = _text_input(self._names)
        encoded = [text.encode() for text in self._texts]
        data = b"".join(len(text).to_bytes(4, "little") + text for text in encoded)
        tensors = [wire.Tensor(declaration.name, datatypes.BYTES, self._shape(declaration), data)]
        for wish in self._names.wishes((self._names.prompt_tokens,)):
            shape = self._shape(wish)
            tensors.append(wire.Tensor(wish.name, wish.datatype, shape, b"\1" * math.prod(shape)))
        return wire.RequestBody(own_id, {}, [], tensors)

    def take(self, body: wire.ResponseBody) -> None:
        """Add a response. Raises InternalError if its outputs are no vectors."""
        for tensor in body.outputs:
            if tensor.name == self._names.embedding:
                self._arrays.append(_numbers(tensor))
            elif tensor.name == self._names.prompt_tokens:
                self._tokens = (self._tokens or 0) + count_tokens(tensor)

    def vectors(self) -> Any:
        """Return an array with a row for each text. Raises InternalError for other numbers."""
        numbers = np.concatenate(self._arrays) if self._arrays else np.empty(0, np.float32)
        count = len(self._texts)
        if not len(numbers) or len(numbers) % count:
            raise InternalError(
                f"output '{self._names.embedding}' of model '{self._names.model}' has "
                f"{len(numbers)} elements for {count} texts; it must return one vector for each"
            )
        return numbers.reshape(count, -1)

    def _shape(self, declaration: signature.Input) -> list[int]:
        """Return the input's shape; with several texts, the first dimension is their number."""
        shape = [1 if dim < 0 else dim for dim in declaration.dims]
        if declaration.dims and declaration.dims[0] < 0:
            shape[0] = len(self._texts)
        return shape


def batches(names: TensorNames, all_texts: Sequence[str]) -> Iterator[Batch]:
    """Return the inferences that a model needs for this number of texts. Raises RefusedField."""
    declaration = _text_input(names)
    if not names.embedding:
        raise _unfit(names, "openai_embedding_output", "output")
    if math.prod([max(1, dim) for dim in declaration.dims]) != 1:
        raise _unfit(names, "openai_text_input", "input", " for one text")
    step = 1
    if declaration.dims and declaration.dims[0] < 0:
        step = names.max_batch_size or len(all_texts)
    for at in range(0, len(all_texts), step):
        yield Batch(names, all_texts[at : at + step])


def document(model: str, done: Sequence[Batch], *, is_base64: bool) -> bytes:
    """Return the response. Raises the errors of Batch.vectors."""
    rows = [row for batch in done for row in batch.vectors()]
    data = [
        {"object": "embedding", "index": i, "embedding": _base64(row) if is_base64 else row}
        for i, row in enumerate(rows)
    ]
    tokens = sum(batch.tokens for batch in done)
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    whole = {"object": "list", "data": data, "model": model, "usage": used}
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)


def _text_input(names: TensorNames) -> signature.Input:
    if names.text is None:
        raise _unfit(names, "openai_text_input", "input")
    return names.text


def _unfit(names: TensorNames, parameter: str, kind: str, why: str = "") -> RefusedField:
    return RefusedField(
        f"model '{names.model}' makes no embeddings: it has no {kind} "
        f"'{names.wanted_name(parameter)}'{why}; its parameter {parameter} may name another",
        "model",
    )


def _base64(row: Any) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def _numbers(tensor: wire.Tensor) -> Any:
    try:
        array = tensor_values.to_numpy(tensor.datatype, [-1], tensor.data)
        numbers = array.astype(np.float32)
    except (ValueError, KeyError, TypeError):
        raise InternalError(f"output '{tensor.name}' must hold numbers") from None
    if not np.isfinite(numbers).all():
        raise InternalError(
            f"output '{tensor.name}' has values that are not finite; correct the model"
        )
    return numbers


class Embeddings:
    """The responder of embeddings."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)

    async def embed(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = await self._calls.read(req, read)
        model = await self._calls.find(req, request.model)
        names = names_of(model)
        own_id = f"embd-{uuid.uuid4().hex}"
        room = asyncio.Semaphore(_AT_ONCE)

        async def infer(batch: Batch) -> Batch:
            async with room:
                current = self._calls.current(request.model)
                body = batch.body(own_id)
                async with aclosing(self._calls.begin(req, current, body, begun_ns)) as items:
                    async for item in items:
                        if (answer := item.content()) is not None:
                            batch.take(answer)
            return batch

        done = await together(map(infer, batches(names, request.texts)))
        size = sum(batch.size for batch in done) * _WRITTEN_BYTES
        write = partial(document, request.model, done, is_base64=request.is_base64)
        resp.data = await json_documents.perform(size, write)
        resp.set_header("x-request-id", own_id)
