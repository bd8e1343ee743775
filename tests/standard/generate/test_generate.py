from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest
from falcon.testing import Result

from tests.frontends.http_api.fakes import Client, FakeGateway
from tests.support.streams import failure, final, item
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InternalError, NotFound
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_standard.generate.response import Writer

NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)
ASK = {"INPUT0": 1.0}


def ask(
    verb: str,
    *items: StreamItem,
    document: Any = ASK,
    model: str = "decoupled",
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> tuple[Result, FakeGateway]:
    gateway = FakeGateway(**settings)
    request_id = document.get("id", "") if isinstance(document, dict) else ""
    gateway.fake_streams.put(request_id, *items)
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Client(gateway).request("POST", f"/v2/models/{model}/{verb}", data, headers), gateway


def tensors(*outputs: tuple[str, str, list[int], bytes], **parameters: Any) -> StreamItem:
    made = [Tensor(name, BY_NAME[kind].number, shape, data) for name, kind, shape, data in outputs]
    return StreamItem(ResponseBody(parameters, made), None, True)


# -------------------------------------------------------------------- generate


@pytest.mark.parametrize("model", ["decoupled", "identity", "decoupled/versions/1"])
@pytest.mark.row("C62")
def test_one_response_is_a_flat_object(model: str) -> None:
    result, gateway = ask("generate", item(b"hi", is_final=True), model=model)

    assert result.status_code == 200
    assert result.headers["content-type"] == "application/json"
    name = model.partition("/")[0]
    assert result.content.decode() == (f'{{"TEXT":"hi","model_name":"{name}","model_version":"1"}}')
    assert gateway.fake_streams.cancelled == []


@pytest.mark.row("C62")
def test_one_element_is_bare_and_others_are_flat_arrays() -> None:
    response = tensors(
        ("one", "FP32", [1, 1], b"\0\0\x80?"),
        ("four", "UINT8", [2, 2], b"\x01\x02\x03\x04"),
        ("none", "FP32", [0], b""),
        ("long", "UINT8", [300], bytes(300)),
    )

    result, _ = ask("generate", response)

    assert result.json == {
        "one": 1.0,
        "four": [1, 2, 3, 4],
        "none": [],
        "long": [0] * 300,
        "model_name": "decoupled",
        "model_version": "1",
    }


def test_others_go_on_while_many_numbers_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    small_is_written, write = threading.Event(), json_documents.pieces

    def write_later(fields: dict[str, Any]) -> list[bytes]:
        assert small_is_written.wait(30)
        return write(fields)

    monkeypatch.setattr(json_documents, "pieces", write_later)
    numbers = np.arange(200_000, dtype=np.float64)
    numbers[::1000] = np.nan
    many = tensors(("x", "FP64", [len(numbers)], numbers.tobytes()), n=1)
    few = tensors(("x", "FP64", [2], numbers[1:3].tobytes()))

    asked_for: list[int] = []

    async def take_room(size: int) -> None:
        asked_for.append(size)

    async def scenario() -> tuple[bytes, int]:
        writer = Writer(FakeGateway().catalogue.find("decoupled"), "7", take_room)
        large = asyncio.ensure_future(writer.document(many))
        await asyncio.sleep(0)
        await writer.document(few)
        small_is_written.set()
        return await large

    text, status = asyncio.run(scenario())
    document = json.loads(text)
    assert (200, ["id", "model_name", "model_version", "n", "x"]) == (status, list(document))
    assert np.array_equal(numbers, np.array(document["x"]), equal_nan=True)
    assert [numbers.nbytes] == asked_for


@pytest.mark.parametrize(
    ("items", "status"),
    [
        ((final(),), 200),
        ((item(b"x"), item(b"y")), 200),
        ((item(b"x"), failure(NotFound("lost"))), 200),
        ((failure(NotFound("lost")), item(b"x")), 404),
    ],
)
@pytest.mark.row("C63")
def test_another_number_of_responses_than_one_is_an_error(
    items: tuple[StreamItem, ...], status: int
) -> None:
    result, gateway = ask("generate", *items)

    assert (result.status_code, result.json) == (status, {"error": NOT_ONE})
    assert gateway.fake_streams.cancelled == [""] * (len(items) > 1)


def test_a_response_whose_bytes_are_not_its_shapes_is_an_error() -> None:
    result, _ = ask("generate", tensors(("x", "FP32", [2], b"abcd")))

    assert result.json["error"].startswith(
        "invalid output 'x' in the response of model 'decoupled':"
    )


# ------------------------------------------------------------- generate_stream


@pytest.mark.row("C64")
def test_each_response_is_an_event() -> None:
    result, gateway = ask("generate_stream", item(b"x"), item(b"y", n=1), final())

    assert result.status_code == 200
    assert result.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "content-length" not in result.headers
    assert result.content.decode() == (
        'data: {"TEXT":"x","model_name":"decoupled","model_version":"1"}\n\n'
        'data: {"TEXT":"y","model_name":"decoupled","model_version":"1","n":1}\n\n'
    )
    assert gateway.fake_streams.cancelled == []


@pytest.mark.row("C64")
def test_a_stream_may_have_no_event() -> None:
    result, _ = ask("generate_stream", final())

    assert (result.status_code, result.content) == (200, b"")
    assert result.headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.row("C64")
def test_the_first_response_decides_the_status(is_final: bool) -> None:
    more = () if is_final else (item(b"x"), final())

    result, _ = ask("generate_stream", failure(InternalError("no"), is_final=is_final), *more)

    assert result.status_code == 500
    assert result.content.startswith(b'data: {"error":"no"}\n\n')
    assert (b"TEXT" in result.content) is not is_final


@pytest.mark.row("C64")
def test_a_later_error_is_an_event() -> None:
    result, _ = ask("generate_stream", item(b"x"), failure(InternalError("no"), is_final=True))

    assert result.status_code == 200
    assert result.content.endswith(b'\n\ndata: {"error":"no"}\n\n')


# ------------------------------------------------------------------ both of them


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "document", "headers", "status", "text"),
    [
        ("nope", ASK, {}, 400, "Request for unknown model: 'nope' is not found"),
        ("identity/versions/9", ASK, {}, 404, "version 9 is not found"),
        ("decoupled", {}, {}, 400, "expected 1 inputs but got 0 inputs"),
        ("decoupled", b"", {}, 400, "expected 1 inputs but got 0 inputs"),
        ("decoupled", b"{", {}, 400, "failed to parse the request JSON buffer"),
        (
            "decoupled",
            ASK,
            {"Content-Encoding": "gzip"},
            400,
            "Unsupported content-encoding, only 'identity' is supported.",
        ),
    ],
)
@pytest.mark.row("C66")
def test_what_is_wrong_before_the_model_runs_is_plain_json(
    verb: str, model: str, document: Any, headers: dict[str, str], status: int, text: str
) -> None:
    result, gateway = ask(verb, document=document, model=model, headers=headers)

    assert result.status_code == status
    assert result.headers["content-type"] == "application/json"
    assert text in result.json["error"]
    assert gateway.requests == []


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_keys_that_name_no_input_are_told_where_one_is_missing(verb: str) -> None:
    document = {"INPUT": 1.0, "id": "7", "parameters": {"a": 1, "b": 2}, "c": 3}

    result, gateway = ask(verb, document=document, model="decoupled")

    assert result.status_code == 400
    assert result.json["error"] == (
        "[request id: 7] expected 1 inputs but got 0 inputs for model 'decoupled'. "
        "Got input(s) [], but missing required input(s) ['INPUT0']. "
        "Please provide all required input(s). "
        "Its inputs are INPUT0; none of them: 'INPUT', 'a', 'b'."
    )
    assert gateway.requests == []


def test_without_such_keys_an_error_says_what_tritons_says() -> None:
    result, _ = ask("generate", document={"id": "7"})

    assert result.json["error"].endswith("Please provide all required input(s).")


# ------------------------------------------------------------------ other bodies


@pytest.mark.parametrize(
    ("kind", "data", "status", "said"),
    [
        ("image/jpeg", b"\xff\xd8", 200, "hi"),
        ("Audio/WAV", b'{"INPUT0": "x"}', 200, "hi"),
        ("application/octet-stream", b"", 200, "hi"),
        ("", b'{"INPUT0": "x"}', 200, "hi"),
        ("text/plain;charset=UTF-8", b'{"INPUT0": "x"}', 200, "hi"),
        ("application/x-www-form-urlencoded", b'{"INPUT0": "x"}', 200, "hi"),
        ("application/vnd.app+json; v=1", b'{"INPUT0": "x"}', 200, "hi"),
        ("application/json", b"\xff\xd8", 400, "failed to parse"),
        ("text/html", b"\xff\xd8", 400, "failed to parse"),
        ("multipart/form-data; boundary=b", b"--b", 400, "multipart is not read"),
    ],
)
def test_a_body_is_json_or_bytes_by_its_type(
    kind: str, data: bytes, status: int, said: str
) -> None:
    answer = item(b"hi", is_final=True)
    result, _ = ask(
        "generate", answer, document=data, model="strings", headers={"content-type": kind}
    )

    assert (status, True) == (result.status_code, said in result.text)
