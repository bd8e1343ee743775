"""Plain JSON and forms as arguments of a function, and its answers as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zmqtriton.embedded.requests import InferenceRequest
from zmqtriton.options import parse
from zmqtriton_extras.functions.backend.kinds import MismatchError
from zmqtriton_extras.functions.bodies import read
from zmqtriton_extras.functions.example_requests import requests
from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.tests.test_functions import BATCH, SCALARS, loaded
from zmqtriton_extras.routes.backend.multipart import RefusedError
from zmqtriton_floor.errors import InvalidArgument

JSON = "application/json"
SOURCE = """
from typing import List, Literal, NamedTuple, Optional
import numpy as np
from zmqtriton import Array, model

class Answer(NamedTuple):
    text: str
    data: bytes
    rows: Array["INT8", -1, 2]
    nothing: Optional[int]

@model
def caption(
    text: str,
    data: bytes,
    rows: Array["INT8", -1, 2],
    style: Literal["short", "long"] = "short",
    share: float = 1,
    loud: bool = False,
    tags: Optional[List[str]] = None,
) -> Answer:
    return Answer(f"{text} {style} {share} {loud} {tags}", data, rows + np.int8(1), None)
"""


def ask(model: Any, body: Any, kind: str = JSON) -> Any:
    """Ask as POST /caption does."""
    interface = interface_of(model.config)
    assert interface is not None
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = InferenceRequest(**read(interface, kind, data)._asdict())
    return json.loads(interface.write(model.infer(request)))


def test_json_is_a_call(tmp_path: Path) -> None:
    with loaded(tmp_path, SOURCE) as model:
        arguments = {"text": "é", "data": "/w==", "rows": [[1, 2], [3, 4]]}
        plain = ask(model, arguments)
        more = {"style": "long", "share": 0.5, "loud": True, "tags": ["a"]}
        full = ask(model, {**arguments, "data": "data:image/png;base64,/w==", **more})
        absent = ask(model, {**arguments, "tags": None})

    assert {
        "text": "é short 1 False None",
        "data": "/w==",
        "rows": [[2, 3], [4, 5]],
        "nothing": None,
    } == plain
    assert "é long 0.5 True ['a']" == full["text"]
    assert plain == absent


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"text": 1}, "text: expected str, got an integer"),
        ({"text": None}, "text: expected str, got null"),
        ({"data": "?"}, "data: expected bytes in base64, got other text"),
        ({"data": 1}, "data: expected bytes, got an integer"),
        ({"rows": [[1]]}, r"rows: expected array of INT8 of shape \[-1, 2\], got array of int8"),
        ({"rows": [[1, 300]]}, "rows: expected array of INT8 .*, got a list of 1 element"),
        ({"rows": [[1, 2.5]]}, "rows: expected array of INT8"),
        ({"rows": "a"}, "rows: expected array of INT8"),
        ({"rows": [[1, True]]}, "rows: expected array of INT8"),
        ({"rows": [[1, 2], [3]]}, "rows: expected array of INT8"),
        ({"style": "odd"}, "style: expected one of 'short', 'long', got a text of 3 letters"),
        ({"style": None}, "style: expected one of 'short', 'long', got null"),
        ({"loud": 1}, "loud: expected bool, got an integer"),
        ({"tags": ["a", 1]}, "tags: expected list of str, got an integer"),
        ({"other": 1}, "'other': there is no such argument; there are: text, data, rows"),
    ],
)
def test_arguments_that_are_wrong_are_refused_with_their_place(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    arguments = {"text": "a", "data": "", "rows": [[1, 2]]}
    with loaded(tmp_path, SOURCE) as model, pytest.raises(MismatchError, match=text):
        ask(model, {**arguments, **changes})


def test_an_argument_that_is_missing_is_refused(tmp_path: Path) -> None:
    with loaded(tmp_path, SCALARS) as model:
        with pytest.raises(MismatchError, match="text: expected str, got nothing"):
            ask(model, {"words": 1})
        for body in (b"[1]", b"{", b"\xff"):
            with pytest.raises(InvalidArgument):
                ask(model, body)


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\na b\r\n'
    b'--x\r\nContent-Disposition: form-data; name="data"; filename="a.png"\r\n\r\n\xff\r\n'
    b'--x\r\nContent-Disposition: form-data; name="rows"\r\n\r\n[[1, 2]]\r\n'
    b'--x\r\nContent-Disposition: form-data; name="loud"\r\n\r\nTrue\r\n'
    b'--x\r\nContent-Disposition: form-data; name="share"\r\n\r\n0.5\r\n--x--\r\n'
)


def test_a_form_is_a_call(tmp_path: Path) -> None:
    with loaded(tmp_path, SOURCE) as model:
        answer = ask(model, FORM, "multipart/form-data; boundary=x")
        form = FORM.replace(b"0.5", b"b")
        with pytest.raises(MismatchError, match=r"share: expected float, got a text of 1 letter$"):
            ask(model, form, "multipart/form-data; boundary=x")

    assert ["a b short 0.5 True None", "/w==", [[2, 3]]] == [*answer.values()][:3]


def test_what_curl_sends_is_json_or_a_form(tmp_path: Path) -> None:
    kind = "application/x-www-form-urlencoded"
    with loaded(tmp_path, SCALARS) as model:
        assert {"output": "a 0.5"} == ask(model, b' {"text": "a b", "words": 1}', kind)
        assert {"output": "a b 0.5"} == ask(model, b"text=a+b&words=7", kind)


def test_a_form_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with loaded(tmp_path, SCALARS) as model:
        for kind, body in (
            ("application/x-www-form-urlencoded", b"\x89PNG"),
            ("application/x-www-form-urlencoded", b"text=a" + b"&" * 1000),
            ("multipart/form-data", b"--x\r\n"),
            ("multipart/form-data; boundary=x", b"--x\r\n\r\na\r\n--x--"),
        ):
            with pytest.raises(RefusedError):
                ask(model, body, kind)
        other = FORM.replace(b'name="data"', b'name="other"')
        with pytest.raises(MismatchError, match="there is no such argument"):
            ask(model, other, "multipart/form-data; boundary=x")


def test_a_call_has_one_entry_of_a_batch(tmp_path: Path) -> None:
    with loaded(tmp_path, BATCH) as model:
        assert {"output": "net 7 3 1"} == ask(model, {"image": 7, "words": 3})
        with pytest.raises(MismatchError, match=r"image: expected int, got a list of 1 element"):
            ask(model, {"image": [7]})


def test_other_models_have_no_interface() -> None:
    assert interface_of({"parameters": {}}) is None


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"type": "object"}, {"role": "user", "content": "hello"}),
        (
            {
                "type": "object",
                "properties": {"role": {"type": "string"}, "name": {"type": "string"}},
                "required": ["role", "name"],
            },
            {"role": "user", "name": "hello", "content": "hello"},
        ),
        ({"type": "string"}, "hello"),
    ],
)
def test_the_example_of_a_chat_has_a_message(item: Any, message: Any) -> None:
    messages = {"type": "array", "items": item, "contentMediaType": "application/json"}
    description = {
        "about": "",
        "is_stream": False,
        "has_batches": False,
        "input": {"type": "object", "properties": {"messages": messages}, "required": ["messages"]},
        "output": {"type": "object", "properties": {}},
    }
    config = {"parameters": {"FUNCTION": {"string_value": json.dumps(description)}}}

    [(path, text), page] = requests("chat", config, parse(["--model-repository=."]))
    without = [*requests("chat", config, parse(["--model-repository=.", "--allow-web-page=false"]))]

    assert ("", "# in a browser, with a form: {url}/chat") == page
    assert [(path, text)] == without
    assert ("/chat", {"messages": [message]}) == (path, json.loads(text))
