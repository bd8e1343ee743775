"""Hostile documents by the doors of functions: JSON and forms, over each protocol."""

from __future__ import annotations

import functools
import gzip
import random
import struct
from collections.abc import Iterator

from tests.faults.attacks.documents import call, rpcs
from tests.faults.attacks.hostile import (
    JSON,
    Attack,
    House,
    asks_http,
    drawn,
    keys,
    many,
    member,
    post,
    string,
)
from tests.faults.attacks.watching import MIB
from tests.faults.requests import grpc_request
from tests.support.server import Server

_BOUNDARY = "X"
FORM = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}
#: Functions that only count what they get.
SOURCE = """
import os
import time
from dataclasses import dataclass
import numpy as np
from zmqtriton import File, model

@dataclass
class Row:
    a: list[float]

@model
def plain(x: int) -> int:
    return x

@model
def shout(text: str, times: int = 1) -> str:
    return text[:9] * times

@model
def texts(x: list[str]) -> list[str]:
    return x

@model
def numbers(x: list[list[int]]) -> int:
    return len(x)

@model
def array(x: np.ndarray) -> int:
    return len(x)

@model
def box(x: dict) -> dict:
    return x

@model
def row(x: Row) -> int:
    return len(x.a)

@model
def count(file: File) -> int:
    return len(file.data)
"""
NAMES = ("plain", "shout", "texts", "numbers", "array", "box", "row", "count")
_CALLED = ("shout", "texts", "numbers", "array", "box", "row")


def form(name: str, text: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + text + f"\r\n--{_BOUNDARY}--\r\n".encode()


def infer(name: str, text: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a request whose one element is a text, as binary data."""
    entry = b'{"name":"%b","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":%d}}' % (
        name.encode(),
        len(text) + 4,
    )
    head = b'{"inputs":[%b]}' % entry
    element = struct.pack("<I", len(text)) + text
    return head + element, {"inference-header-content-length": str(len(head))}


def worst(server: Server) -> Iterator[Attack]:
    """Iterate over the documents that once held up a server for seconds."""
    lists, floats, texts = many(b"[]", 60), many(b"0.1234", 56), many(b'""', 21)
    zipped = {**FORM, "content-encoding": "gzip"}
    forms = {
        "form, [] for an int": ("shout", form("times", lists), FORM),
        "form, floats for an int": ("shout", form("times", many(b"1.5", 60)), FORM),
        "form of [] as gzip": ("shout", gzip.compress(form("times", lists), 1), zipped),
        "form, keys": ("box", form("x", keys(45)), FORM),
        "form, a text": ("shout", form("text", b"a, " * (20 * MIB)), FORM),
    }
    documents = {
        "empty texts": ("texts", member("x", texts)),
        "floats for a str": ("shout", member("text", floats)),
        "ints for a str": ("shout", member("text", many(b"1", 16))),
        "floats in a dict": ("box", member("x", member("a", floats))),
        "floats in a dataclass": ("row", member("x", member("a", floats))),
        "keys of a dict": ("box", member("x", keys(10))),
        "ints for an array": ("array", member("x", many(b"1", 16))),
        "small lists": ("numbers", member("x", many(b"[1]", 0.99))),
        "base64": ("count", member("file", string(b"A", 60))),
        "escapes": ("shout", member("text", string(b"\\u0041", 60))),
    }
    posts = {name: (model, body, JSON) for name, (model, body) in documents.items()} | forms
    for name, (model, body, headers) in posts.items():
        yield post(server, f"POST /{model}", f"/{model}", (name, body), headers)


def by_infer(server: Server, model: str, name: str, text: bytes) -> Iterator[Attack]:
    """Iterate over the calls of a function with a document as an element."""
    [rpc] = [each for each in rpcs() if each.method == "ModelInfer"]
    body, headers = infer("x", text)
    path = f"/v2/models/{model}/infer"
    yield post(server, f"infer of {model}", path, (name, body), headers)
    request = grpc_request(model, x=("BYTES", (1,), struct.pack("<I", len(text)) + text))
    yield call(server, rpc, name, request.SerializeToString(), model)


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    yield from worst(server)
    for model in _CALLED:
        name, text = drawn(chance, 30.0)
        parameter = "text" if model == "shout" else "x"
        body = member(parameter, text)
        yield post(server, f"POST /{model}", f"/{model}", (f"drawn {name}", body))
        body = form(parameter, text)
        yield post(server, f"POST /{model}", f"/{model}", (f"drawn form {name}", body), FORM)
    for model in ("box", "row"):
        for name, text in (("[]", many(b"[]", 57)), ("0.1234", many(b"0.1234", 56))):
            yield from by_infer(server, model, name, member("a", text))
        yield from by_infer(server, model, *drawn(chance))


def prepare(server: Server) -> None:
    for name in NAMES:
        server.write_model(name, "", SOURCE)


HOUSE = House(
    attacks,
    prepare=prepare,
    bystanders=lambda server: {
        "function": functools.partial(asks_http, server.http_port, "/plain", {"x": 1})
    },
)
