"""A row of the tables: its name, what a client sends, and why anybody would.

The tables in tables/ are made of these, play.py sends them. Nothing here knows a server.
"""

from __future__ import annotations

import json as json_format
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Http(NamedTuple):
    """One request over HTTP, sent as it stands: no header is added but Host and the length."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    timeout_s: float = 20.0


class Rpc(NamedTuple):
    """One unary call; the message is in protobuf's text format."""

    method: str
    message: str = ""
    metadata: Mapping[str, str] = {}
    timeout_s: float = 20.0


class Bytes(NamedTuple):
    """One unary call of any path, whose message need not be one; so is what is answered."""

    path: str
    data: bytes
    timeout_s: float = 20.0


class Stream(NamedTuple):
    """One ModelStreamInfer call: all requests are sent, then the client's half is closed."""

    messages: Sequence[str]
    metadata: Mapping[str, str] = {}
    timeout_s: float = 20.0


class Loaded(NamedTuple):
    """A load, and all that can be known of the model afterwards.

    Only Triton's log says why it could not read a configuration; that counts as part of the answer.
    """

    model: str
    parameters: Mapping[str, str] = {}
    timeout_s: float = 30.0


class Scrape(NamedTuple):
    """A request to the port of the metrics; of the page, the lines in which a pattern is found."""

    pattern: str
    method: str = "GET"
    path: str = "/metrics"
    timeout_s: float = 20.0


Request = Http | Rpc | Bytes | Stream | Loaded | Scrape


class Case(NamedTuple):
    """A row. Several requests are sent one after another, each when the one before is answered."""

    name: str
    request: Request | tuple[Request, ...]
    row: str
    why: str
    #: What comes of it hangs on tenths of a second: on a busy machine it may differ once.
    is_timed: bool = False

    @property
    def requests(self) -> tuple[Request, ...]:
        return (self.request,) if isinstance(self.request, Request) else self.request


# ------------------------------------------------------------------------ HTTP


def get(path: str, headers: Mapping[str, str] | None = None) -> Http:
    return Http("GET", path, b"", headers or {})


def post(path: str, json: Any = None, **rest: Any) -> Http:
    """json is a document, or a text that is sent as it stands; `body` are bytes."""
    body = rest.pop("body", b"")
    if json is not None:
        body = (json if isinstance(json, str) else json_format.dumps(json)).encode()
    return Http("POST", path, body, **rest)


def tensor(name: str, datatype: str, data: Any, shape: Sequence[int] | None = None) -> Any:
    """An input as a JSON document; one dimension unless the shape is given."""
    shape = [len(data)] if shape is None else list(shape)
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def infer(model: str, *inputs: Any, **rest: Any) -> Http:
    """POST infer with JSON tensors; what else is given stands in the document."""
    return post(f"/v2/models/{model}/infer", {"inputs": inputs, **rest})


def binary(model: str, *inputs: tuple[Any, ...], tail: bytes | None = None, **rest: Any) -> Http:
    """POST infer with binary tensors (name, datatype, shape, bytes); `tail` replaces the bytes."""
    described = [
        {
            "name": name,
            "datatype": datatype,
            "shape": shape,
            "parameters": {"binary_data_size": len(data)},
        }
        for name, datatype, shape, data in inputs
    ]
    document = json_format.dumps({"inputs": described, **rest}).encode()
    data = b"".join(data for *_, data in inputs) if tail is None else tail
    headers = {"Inference-Header-Content-Length": str(len(document))}
    return Http("POST", f"/v2/models/{model}/infer", document + data, headers)


def elements(*texts: str | bytes) -> bytes:
    """Elements of BYTES as they travel."""
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


# ------------------------------------------------------------------------ gRPC


def literal(data: bytes) -> str:
    """Bytes as a string of protobuf's text format."""
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + '"'


def message(model: str, *inputs: tuple[Any, ...], more: str = "") -> str:
    """A ModelInferRequest with raw tensors (name, datatype, shape, bytes)."""
    described = [
        f'inputs {{ name: "{name}" datatype: "{datatype}" shape: {list(shape)} }}'
        for name, datatype, shape, _ in inputs
    ]
    raw = [f"raw_input_contents: {literal(data)}" for *_, data in inputs]
    return " ".join([f'model_name: "{model}"', *described, *raw, more])


def call(model: str, *inputs: tuple[Any, ...], more: str = "") -> Rpc:
    return Rpc("ModelInfer", message(model, *inputs, more=more))


# ------------------------------------------------------------------------ code


def code(text: str) -> Any:
    """The input of the models `coded*`: what execute does, and returns."""
    return tensor("CODE", "BYTES", [text])


def coded(text: str, *inputs: Any, model: str = "coded", **rest: Any) -> Http:
    return infer(model, code(text), *inputs, **rest)


def said(expression: str, *inputs: Any, model: str = "coded", **rest: Any) -> Http:
    """The repr of an expression as the model sees it; `request` is the request."""
    return coded(f"return [say({expression})]", *inputs, model=model, **rest)


def called(text: str, *inputs: tuple[Any, ...], model: str = "coded", more: str = "") -> Rpc:
    return call(model, ("CODE", "BYTES", [1], elements(text)), *inputs, more=more)


def streamed(*texts: str, model: str = "coded_decoupled", more: str = "") -> Stream:
    """A request for each text over one stream."""
    return Stream(
        [message(model, ("CODE", "BYTES", [1], elements(text)), more=more) for text in texts]
    )


def events(text: str, model: str = "coded_decoupled", **rest: Any) -> Http:
    return post(f"/v2/models/{model}/generate_stream", {"CODE": text, **rest})
