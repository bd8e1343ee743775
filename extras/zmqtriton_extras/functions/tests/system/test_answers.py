"""Statuses that functions choose, answers of every type, and damaged files, by each protocol."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import numpy as np
import PIL.Image
import pytest
import tritonclient.grpc as grpc_client
import zmq
from tritonclient.utils import InferenceServerException

import zmqtriton
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from zmqtriton_extras.functions.backend.media import Audio
from zmqtriton_floor.errors import ZmqTritonError

pytestmark = pytest.mark.system

SOURCE = """
import dataclasses
import datetime
import decimal
import uuid
from collections.abc import Iterator
from typing import Annotated
import numpy as np
import triton_python_backend_utils as pb_utils
from pydantic import Field
from zmqtriton import Audio, Failed, File, Image, Refused, model

@dataclasses.dataclass
class Row:
    a: int
    b: str = "x"

@model
def refused(status: int) -> str:
    raise Refused("no such user", status=status)

@model
def plain(text: str) -> str:
    return Refused("not this one") if text else Failed("no text")

@model
def stream(status: int) -> Iterator[int]:
    yield 1
    yield Refused("no more", status=status)

@model(batch=4, delay_ms=50)
def entries(x: list[int]) -> list[str]:
    if 7 in x:
        raise Refused("all of it", status=418)
    failed = {1: Refused("gone", status=410), 2: Failed("no face"), 3: Refused("wrong")}
    return [failed.get(each, str(each)) for each in x]

@model
def caller(status: int) -> str:
    status = pb_utils.Tensor("status", np.array([status]))
    request = pb_utils.InferenceRequest(
        model_name="refused", requested_output_names=["output"], inputs=[status]
    )
    error = request.exec().error()
    return f"{error.code()} {error.message()}"

@model
def echo(x: dict) -> dict:
    return x

@model
def everything() -> dict:
    return {
        "number": np.float32(1.5), "array": np.arange(3), "day": datetime.date(2020, 1, 2),
        "set": {1}, "uuid": uuid.UUID(int=1), "rows": [Row(1)], "list": [np.int64(3)],
        "nan": float("nan"), "large": 2**64, decimal.Decimal("1.5"): None,
    }

@model
def nan() -> float:
    return float("nan")

@model
def unwritable() -> dict:
    return {"rows": [Row(1), Row(object())]}

@model
def deep(levels: int) -> dict:
    value = []
    for _ in range(levels):
        value = [value]
    return {"a": value}

@model
def ragged(rows: list[list[float]]) -> list[list[float]]:
    return [[2 * each for each in row] for row in rows]

@model
def bounded(x: Annotated[int, Field(ge=0, le=10)], rows: list[Row] = []) -> list[Row]:
    return rows

@model
def look(image: Image) -> int:
    return int(np.asarray(image).sum())

@model(batch=8, delay_ms=50)
def looks(image: list[Image]) -> list[int]:
    return [int(image.pil.convert("L").size[0]) for image in image]

@model
def listen(sound: Audio) -> int:
    return len(sound.samples)

@model
def broken(image: Image) -> int:
    raise ValueError("my own")
"""
NAMES = [
    line.partition("(")[0].removeprefix("def ")
    for line in SOURCE.splitlines()
    if line.startswith("def ")
]


def picture() -> bytes:
    file = io.BytesIO()
    PIL.Image.effect_noise((64, 64), 50).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module", autouse=True)
def zmq_threads() -> None:
    """Start libzmq's threads, which stay for the life of the process."""
    zmq.Context.instance().socket(zmq.SUB).close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("answers"), frontends=("grpc",))
    for name in NAMES:
        server.write_model(name, "", SOURCE)
    forks = 'parameters { key: "INSTANCES" value { string_value: "forks" } }'
    server.write_model("forked", forks, SOURCE.replace("def refused", "def forked"))
    with server:
        yield server


@pytest.mark.parametrize("status", [400, 401, 404, 418, 422, 429, 499, 500, 503, 599])
@pytest.mark.parametrize("name", ["refused", "forked"])
def test_a_status_is_that_of_plain_json_and_of_tensors(
    server: Server, name: str, status: int
) -> None:
    expected = (status, {"error": "no such user"})

    assert expected == server.request_json(f"/{name}", {"status": status})
    assert expected == server.infer_json(name, tensor("status", "INT64", [status], [1]))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (408, "DEADLINE_EXCEEDED"),
        (409, "ALREADY_EXISTS"),
        (418, "INVALID_ARGUMENT"),
        (422, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (499, "CANCELLED"),
        (500, "INTERNAL"),
        (501, "UNIMPLEMENTED"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (599, "INTERNAL"),
    ],
)
def test_a_status_has_a_code_of_grpc(server: Server, status: int, code: str) -> None:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        value = grpc_client.InferInput("status", [1], "INT64")
        value.set_data_from_numpy(np.array([status]))
        with pytest.raises(InferenceServerException) as caught:
            client.infer("refused", [value])

    assert (f"StatusCode.{code}", "no such user") == (
        caught.value.status(),
        caught.value.message(),
    )


def test_programs_and_other_models_get_the_nearest_error(server: Server) -> None:
    with zmqtriton.connect(str(server.http_port)) as connection:
        for status, code in ((404, "NOT_FOUND"), (403, "INVALID_ARG"), (504, "CANCELLED")):
            with pytest.raises(ZmqTritonError, match="no such user") as caught:
                connection.refused(status)
            assert status == caught.value.http_status
            assert code in connection.caller(status)
    assert (500, {"error": "ValueError: the status of a Refused must be 400 to 599, not 200"}) == (
        server.request_json("/refused", {"status": 200})
    )


def test_a_failure_that_is_returned_fails_the_request(server: Server) -> None:
    assert (422, {"error": "not this one", "detail": []}) == server.request_json(
        "/plain", {"text": "a"}
    )
    assert (500, {"error": "no text"}) == server.request_json("/plain", {"text": ""})
    events = server.exchange("/stream", b'{"status": 404}')
    assert b'data: {"output":1}' in events.body
    assert b'data: {"error":"no more"}' in events.body


def test_an_entry_of_a_batch_has_a_status_of_its_own(server: Server) -> None:
    def ask(number: int) -> tuple[int, Any]:
        return server.request_json("/entries", {"x": number})

    with ThreadPoolExecutor(4) as threads:
        answers = [*threads.map(ask, range(4))]

    assert [
        (200, {"output": "0"}),
        (410, {"error": "gone"}),
        (500, {"error": "no face"}),
        (422, {"error": "wrong", "detail": []}),
    ] == answers
    assert (418, {"error": "all of it"}) == ask(7)


def test_integers_of_any_size_come_back(server: Server) -> None:
    value = {"a": 2**64, "b": [-(2**63) - 1, 10**400], "c": 2**63, "d": 0.1234567890123456789}

    assert (200, {"output": value}) == server.request_json("/echo", {"x": value})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = server.exchange("/echo", urlencode({"x": json.dumps(value)}).encode(), form)
    assert {"output": value} == answer.document
    status, document = server.request_json("/echo", {"x": {"a": [2**64, float("nan")]}})
    assert (200, {"output": {"a": [2**64, None]}}) == (status, document)
    with zmqtriton.connect(str(server.http_port)) as connection:
        assert value == connection.echo(value)


def test_a_number_of_too_many_digits_is_the_clients_error(server: Server) -> None:
    answer = server.exchange("/echo", b'{"x": {"a": %s}}' % (b"9" * 5000))

    assert 422 == answer.status
    assert b"Exceeds the limit" in answer.body


def test_what_python_has_becomes_json(server: Server) -> None:
    assert {
        "number": 1.5,
        "array": [0, 1, 2],
        "day": "2020-01-02",
        "set": [1],
        "uuid": "00000000-0000-0000-0000-000000000001",
        "rows": [{"a": 1, "b": "x"}],
        "list": [3],
        "nan": None,
        "large": 2**64,
        "1.5": None,
    } == server.request_json("/everything", {})[1]["output"]
    assert b'{"output":null}' == server.exchange("/nan", b"{}").body


def test_what_cannot_be_written_is_named_with_its_place(server: Server) -> None:
    status, document = server.request_json("/unwritable", {})

    text = "TypeError: output 'output'.rows.1.a: no JSON for a value of type object"
    assert (500, f"{text}: convert it") == (status, document["error"])
    assert eventually(lambda: "unwritable/1/model.py:" in server.log_text(), 30)


@pytest.mark.parametrize("levels", [90, 300, 800, 3000])
def test_deep_answers_are_written_or_refused(server: Server, levels: int) -> None:
    answer = server.exchange("/deep", json.dumps({"levels": levels}).encode())

    is_written = answer.status == 200 and answer.body.count(b"[") == levels + 1
    assert is_written is (levels < 900)
    assert is_written or b"JSON must be less deep" in answer.body
    assert b"internal error" not in answer.body


def test_rows_of_different_lengths_come_and_go_beside_tensors(server: Server) -> None:
    for rows in ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0]], [[], [1.0]], []):
        doubled = [[2 * each for each in row] for row in rows]
        assert (200, {"output": doubled}) == server.request_json("/ragged", {"rows": rows})
        with zmqtriton.connect(str(server.http_port)) as connection:
            assert doubled == connection.ragged(rows)
    assert (200, [[2.0]]) == (
        server.infer_json("ragged", tensor("rows", "FP64", [1.0], [1, 1]))[0],
        server.request_json("/ragged", {"rows": [[1]]})[1]["output"],
    )
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        whole = grpc_client.InferInput("rows", [2, 2], "FP64")
        whole.set_data_from_numpy(np.ones((2, 2)))
        assert [[2, 2], [2, 2]] == client.infer("ragged", [whole]).as_numpy("output").tolist()
        empty = grpc_client.InferInput("rows", [0, 0], "FP64")
        empty.set_data_from_numpy(np.ones((0, 0)))
        text = grpc_client.InferInput("rows.ragged", [1], "BYTES")
        text.set_data_from_numpy(np.array([b"[[1], []]"], object))
        answer = client.infer("ragged", [empty, text])
        assert answer.as_numpy("output") is None
        assert [[2.0], []] == json.loads(answer.as_numpy("output.ragged")[0])


def test_all_errors_are_told_with_their_places(server: Server) -> None:
    rows = [{"a": "b"}, {"b": 1}, {"a": 1, "c": 2}, {"a": 1}]

    status, document = server.request_json("/bounded", {"x": 500, "rows": rows})

    assert 422 == status
    assert [
        ["x"],
        ["rows", "0", "a"],
        ["rows", "1", "a"],
        ["rows", "1", "b"],
        ["rows", "2", "c"],
    ] == [row["loc"] for row in document["detail"]]
    assert "Input should be less than or equal to 10" == document["detail"][0]["msg"]
    places = [part.partition(":")[0] for part in document["error"].split("; ")]
    assert ["x", "rows.0.a", "rows.1.a", "rows.1.b", "rows.2.'c'"] == places
    status, document = server.request_json("/bounded", {"x": "a", "y": 1, "rows": [1] * 100_000})
    places = [row["loc"] for row in document["detail"]]
    assert (422, 20, [["x"], ["y"], ["rows", "0"]]) == (status, len(places), places[:3])
    answer = server.exchange("/bounded", json.dumps({"x": 1, "rows": [1] * 5000}).encode())
    assert 422 == answer.status
    assert 20 == len(answer.document["detail"])
    assert answer.document["error"].endswith("; 4980 more errors")


@pytest.mark.parametrize("name", ["look", "looks"])
def test_a_damaged_picture_is_the_clients_error(server: Server, name: str) -> None:
    whole = picture()

    def ask(data: bytes) -> tuple[int, Any]:
        return server.request_json(f"/{name}", {"image": base64.b64encode(data).decode()})

    with ThreadPoolExecutor(4) as threads:
        answers = [*threads.map(ask, [whole, whole[:1000], b"text", whole])]

    assert [200, 422, 422, 200] == [status for status, _ in answers]
    assert ["image"] == answers[1][1]["detail"][0]["loc"]
    assert answers[1][1]["error"].startswith("image: expected a picture that is whole")
    assert answers[2][1]["error"] == "image: expected a picture that Pillow can read"
    assert 500 == server.request_json("/broken", {"image": base64.b64encode(whole).decode()})[0]


def test_a_damaged_sound_is_the_clients_error(server: Server) -> None:
    whole = Audio.of(np.zeros((100, 2)), 8000).data

    def ask(data: bytes) -> tuple[int, Any]:
        return server.request_json("/listen", {"sound": base64.b64encode(data).decode()})

    assert (200, {"output": 100}) == ask(whole)
    for data in (b"RIFF", whole[:-3]):
        status, document = ask(data)
        assert (422, ["sound"]) == (status, document["detail"][0]["loc"]), data
