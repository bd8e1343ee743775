"""Functions for clients of HTTP: methods, bodies and answers that are files, fields and queries."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.support.server import Answer, Server, exchange
from zmqtriton_extras.functions.exporting import run_export
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

SOURCE = '''
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
import numpy as np
from zmqtriton import Array, Audio, File, Image, model

class Answer(NamedTuple):
    picture: Image
    text: str

@model
def shout(text: str, times: int = 1, loud: bool = False) -> str:
    """Say a text <b>loudly</b>."""
    return f"{text * times} {loud}"

@model
def lists(
    x: list[str],
    y: list[int] = [1, 2],
    z: list[list[int]] = [[1]],
    w: list[bool] = [],
    words: Array["STRING", -1] = np.array([], object),
) -> str:
    return f"{x} {y} {z} {w} {[each.decode() for each in words]}"

@model
def box(agree: bool, more: bool = True, data: dict[str, int] = {"a": 1}) -> str:
    return f"{agree} {more} {data}"

@model
def about(file: File, word: str = "") -> str:
    path = file.path
    with open(path, "rb") as whole:
        assert whole.read() == file.data
    last, is_plain = os.path.basename(path), os.path.realpath(path) == path
    return f"{file.name}|{file.suffix}|{file.content_type}|{last}|{is_plain}|{word}"

@model
def where(file: Path) -> str:
    return f"{file.name} {len(file.read_bytes())}"

@model
def same(image: Image) -> Image:
    return image

@model
def hear(sound: Audio) -> Audio:
    return sound

@model
def echo(file: File) -> File:
    return file

@model
def caption(image: Image) -> Answer:
    return Answer(image, image.content_type)

@model
def maybe(x: int = 0) -> Image | None:
    return None

@model
def two(left: Image, right: Image) -> int:
    return len(left.data) - len(right.data)

@model
def sizes(files: list[bytes]) -> list[int]:
    return [len(each) for each in files]

@model(batch=4)
def rows(image: list[Image], word: str = "a") -> list[str]:
    return [f"{each.name} {each.content_type} {word}" for each in image]

@model(batch=4)
def mirror(image: list[Image]) -> list[Image]:
    return image

@model
def drops(image: Image) -> Iterator[Image]:
    yield image
'''
NAMES = (
    "shout lists box about where same hear echo caption maybe two sizes rows mirror drops"
).split()
JPEG, PNG = b"\xff\xd8\xff\xe0" + b"j" * 9, b"\x89PNG\r\n\x1a\n" + b"p" * 9
LARGE = JPEG * 20_000
FORM = "multipart/form-data; boundary=x"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("http")
    options = ("--http-max-input-size=4000000",)
    server = Server(directory, ["add_sub"], options=options, frontends=("grpc",))
    for name in NAMES:
        server.write_model(name, "", SOURCE)
    with server:
        yield server


def ask(
    server: Server, path: str, body: bytes | None = None, method: str = "", **headers: str
) -> Answer:
    """The answer to a request; `content_type` is such a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    method = method or ("GET" if body is None else "POST")
    return exchange(urllib.request.Request(f"{server.url}{path}", body, named, method=method))


def form(*fields: tuple[str, bytes], file: tuple[str, str, str] | None = None) -> bytes:
    """A form; `file` has name, file name and content type of the first field's file."""
    parts = []
    for name, value in fields:
        head = f'--x\r\nContent-Disposition: form-data; name="{name}"'
        if file and file[0] == name:
            head += f'; filename="{file[1]}"\r\nContent-Type: {file[2]}'
        parts.append(head.encode() + b"\r\n\r\n" + value + b"\r\n")
    return b"".join(parts) + b"--x--\r\n"


def output(answer: Answer) -> Any:
    assert 200 == answer.status, answer.body
    return answer.document["output"]


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.document["error"]


# ------------------------------------------------------------------ methods


def test_get_answers_what_the_function_takes(server: Server) -> None:
    answer = ask(server, "/shout")
    head = ask(server, "/shout", method="HEAD")

    assert (200, "application/json") == (answer.status, answer.headers["content-type"])
    document = answer.document
    assert ask(server, "/openapi.json").document["paths"]["/shout"]["post"] == document
    body = document["requestBody"]["content"]["application/json"]
    assert {"type": "integer", "default": 1} == body["schema"]["properties"]["times"]
    assert {"text": "hello"} == body["examples"]["shout"]["value"]
    assert (200, b"") == (head.status, head.body)
    assert answer.headers["content-length"] == head.headers["content-length"]
    assert 404 == ask(server, "/nothing").status == ask(server, "/add_sub").status


def test_a_browser_gets_a_page_that_holds_nothing_of_the_function(server: Server) -> None:
    page = ask(server, "/shout", accept="text/html,application/xhtml+xml,*/*;q=0.8")

    assert (200, "text/html; charset=utf-8") == (page.status, page.headers["content-type"])
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert b"loudly" not in page.body
    assert page.body == ask(server, "/same", accept="text/html").body
    assert 404 == ask(server, "/nothing", accept="text/html").status


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_are_not_allowed(server: Server, method: str) -> None:
    answer = ask(server, "/shout", method=method)

    assert 405 == answer.status
    assert {"GET", "HEAD", "POST"} == {*answer.headers["allow"].split(", ")}
    assert 404 == ask(server, "/nothing", method=method).status


def test_tokens_guard_all_methods(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens", "t" * 32
    scopes = token_file.parse_scopes("infer")
    grant = Grant("app", token_file.Grant.digest_of(token), scopes, ("shout",))
    tokens.write_text(f"{grant.line()}\n")
    tokens.chmod(0o600)
    server = Server(tmp_path / "s", options=[f"--tokens={tokens}"], frontends=())
    server.write_model("shout", "", SOURCE)
    with server:
        for method in ("GET", "HEAD", "POST", "PUT"):
            assert 401 == ask(server, "/shout", method=method).status
            assert 404 == ask(server, "/a/b", method=method).status
        bearer = f"Bearer {token}"
        assert 200 == ask(server, "/shout", authorization=bearer).status
        assert 405 == ask(server, "/shout", method="PUT", authorization=bearer).status


def test_routes_of_models_leave_functions_their_methods(tmp_path: Path) -> None:
    options = ["--routes", "--allow-web-page=false"]
    server = Server(tmp_path / "s", options=options, frontends=())
    server.write_model("shout", "", SOURCE)
    with server:
        assert "requestBody" in ask(server, "/shout", accept="text/html").document
        answer = ask(server, "/shout", method="PUT")
        assert (405, "GET, HEAD, POST") == (answer.status, answer.headers["allow"])
        assert 404 == ask(server, "/nothing", method="PUT").status


# ---------------------------------------------------------- bodies and answers


@pytest.mark.parametrize("data", [JPEG, PNG, LARGE], ids=["JPEG", "PNG", "large"])
def test_a_body_that_is_a_picture_comes_back_as_one(server: Server, data: bytes) -> None:
    for path in ("/same", "/mirror"):
        for accept in ("image/png", "image/*", "application/octet-stream", "image/jpeg"):
            answer = ask(server, path, data, content_type="image/jpeg", accept=accept)

            assert (200, data) == (answer.status, answer.body)
            kind = "image/png" if data is PNG else "image/jpeg"
            assert kind == answer.headers["content-type"]
            assert "nosniff" == answer.headers["x-content-type-options"]

        for accept in ("*/*", "application/json", "image/png;q=0.1, application/json"):
            text = output(ask(server, path, data, content_type="image/x", accept=accept))
            assert f"data:{kind};base64,{base64.b64encode(data).decode()}" == text


def test_sounds_and_files_are_bodies_too(server: Server) -> None:
    sound = b"RIFF\0\0\0\0WAVEfmt "
    answer = ask(server, "/hear", sound, content_type="audio/wav", accept="audio/wav")
    assert ("audio/wav", sound) == (answer.headers["content-type"], answer.body)

    page = b"<script>"
    answer = ask(server, "/echo", page, content_type="text/html", accept="application/*;q=0.5,*/*")
    assert "data:application/octet-stream;base64,PHNjcmlwdD4=" == output(answer)
    answer = ask(server, "/echo", page, content_type="text/html", accept="application/octet-stream")
    assert ("application/octet-stream", page) == (answer.headers["content-type"], answer.body)


def test_one_picture_of_several_outputs_is_the_answer(server: Server) -> None:
    answer = ask(server, "/caption", JPEG, content_type="image/jpeg", accept="image/*")
    assert (200, JPEG) == (answer.status, answer.body)
    document = ask(server, "/caption", JPEG, content_type="image/jpeg").document
    assert "image/jpeg" == document["text"]

    answer = ask(server, "/maybe", b"{}", accept="image/png")
    assert (204, b"") == (answer.status, answer.body)


@pytest.mark.parametrize(
    ("path", "accept", "types"),
    [
        ("/shout", "image/png", "application/json"),
        ("/hear", "image/png", "application/json, audio/wav, audio/mpeg, audio/ogg"),
        ("/drops", "image/png", "text/event-stream, application/json"),
        ("/shout", "no type", "application/json"),
    ],
)
def test_an_answer_that_no_function_has_is_not_acceptable(
    server: Server, path: str, accept: str, types: str
) -> None:
    status, text = refusal(ask(server, path, b'{"text": "a"}', accept=accept))

    assert (406, True) == (status, text.startswith(f"the function answers with {types}"))


@pytest.mark.parametrize(
    ("path", "kind", "sendable"),
    [
        ("/shout", "text/csv", "multipart/form-data"),
        ("/same", "audio/wav", "multipart/form-data, image/* as 'image'"),
        ("/about", "application/x-www-form-urlencoded", "multipart/form-data, */* as 'file'"),
        ("/two", "image/png", "multipart/form-data"),
    ],
)
def test_a_body_of_no_parameter_is_told_what_can_be_sent(
    server: Server, path: str, kind: str, sendable: str
) -> None:
    status, text = refusal(ask(server, path, PNG, content_type=kind))

    assert (415, True) == (status, text.endswith(f"application/x-www-form-urlencoded, {sendable}"))


def test_a_document_may_have_any_type_that_is_no_file(server: Server) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/vnd.api+json"):
        assert "a False" == output(ask(server, "/shout", b' {"text": "a"}', content_type=kind))
    document = {"file": base64.b64encode(b"a").decode()}
    body = json.dumps(document).encode()
    answer = output(ask(server, "/about", body, content_type="application/json"))
    assert answer.startswith("||application/octet-stream|")


def test_a_body_that_is_too_large_is_413(server: Server) -> None:
    whole = b"x" * 4_000_001
    for kind in ("application/json", FORM, "image/png"):
        status, text = refusal(ask(server, "/same", whole, content_type=kind))

        assert (413, True) == (status, "4000000 bytes of --http-max-input-size" in text)


# ------------------------------------------------------------- queries, fields


def test_a_query_fills_what_the_body_lacks(server: Server) -> None:
    assert "aa True" == output(ask(server, "/shout?times=2&loud=on", b'{"text": "a"}'))
    assert "a False" == output(ask(server, "/shout?times=2", b'{"text": "a", "times": 1}'))
    assert "é False" == output(ask(server, "/shout?text=%C3%A9&times=", b""))
    answer = ask(server, "/lists?x=a&x=b&y=7", b"", content_type="application/json")
    assert "['a', 'b'] [7] [[1]] [] []" == output(answer)
    fields = form(("text", b"b"))
    assert "bb False" == output(ask(server, "/shout?times=2&text=a", fields, content_type=FORM))
    answer = ask(server, "/about?word=w", b"1", content_type="text/csv")
    assert "|.csv|text/csv|file.csv|True|w" == output(answer)
    assert (
        "  image/png w".strip()
        == output(ask(server, "/rows?word=w", PNG, content_type="image/png")).strip()
    )
    for query, text in (
        ("?other=1", "'other': there is no such argument; there are: text, times, loud"),
        ("?times=x", "times: expected int, got a text of 1 letter"),
        ("?text=%ff", "text: expected text in UTF-8, got other bytes"),
    ):
        status, error = refusal(ask(server, f"/shout{query}", b""))
        assert (422, True) == (status, text in error), error


def test_repeated_fields_are_a_list(server: Server) -> None:
    def lists(*fields: tuple[str, bytes]) -> tuple[Any, Any]:
        encoded = urlencode(fields).encode()
        return (
            output(ask(server, "/lists", form(*fields), content_type=FORM)),
            output(ask(server, "/lists", encoded)),
        )

    for fields, value in (
        ([("x", b"a")], "['a'] [1, 2] [[1]] [] []"),
        ([("x", b"a"), ("x", b"b")], "['a', 'b'] [1, 2] [[1]] [] []"),
        ([("x", b'["a", "b"]')], "['a', 'b'] [1, 2] [[1]] [] []"),
        ([("x", b"a"), ("y", b"3"), ("y", b"4")], "['a'] [3, 4] [[1]] [] []"),
        ([("x", b"a"), ("z", b"[2]"), ("z", b"[3]")], "['a'] [1, 2] [[2], [3]] [] []"),
        ([("x", b"a"), ("w", b"on"), ("w", b"off")], "['a'] [1, 2] [[1]] [True, False] []"),
        ([("x", b"a"), ("words", b"1"), ("words", b"b")], "['a'] [1, 2] [[1]] [] ['1', 'b']"),
    ):
        assert (value, value) == lists(*fields)
    status, text = refusal(ask(server, "/lists", form(("x", b"a"), ("y", b"b")), content_type=FORM))
    assert (422, True) == (status, text.startswith("y: expected list of int, got a text of 1"))


def test_a_form_is_as_browsers_send_it(server: Server) -> None:
    def ask_form(path: str, *fields: tuple[str, bytes], **more: Any) -> Answer:
        return ask(server, path, form(*fields, **more), content_type=FORM)

    assert "True True {'a': 1}" == output(ask_form("/box", ("agree", b"on")))
    assert "False False {'a': 1}" == output(ask_form("/box", ("more", b"off"), ("data", b"")))
    assert "False True {'a': 1}" == output(ask(server, "/box", b""))
    assert 422 == ask(server, "/box", b"{}").status
    assert "a False" == output(ask_form("/shout", ("text", b"a"), ("times", b"")))
    status, text = refusal(ask_form("/same", ("image", b""), file=("image", "", "image/png")))
    assert (422, "image: expected Image, got nothing") == (status, text)
    answer = ask_form("/shout", ("text", b"a\xffb"), file=("text", "a.txt", "text/plain"))
    assert (422, [["text"]]) == (answer.status, [e["loc"] for e in answer.document["detail"]])
    status, text = refusal(ask_form("/shout", ("text", b"a"), ("c.c", b"1")))
    assert (422, True) == (status, text.startswith("'c.c': there is no such argument"))
    assert "False True {'b': 2}" == output(ask_form("/box", ("data", b'{"b": 2}')))
    assert [2, 3] == output(
        ask_form("/sizes", ("files", b"ab"), ("files", b"abc"), file=("files", "a", "b/c"))
    )


def test_the_description_of_a_form_is_what_a_form_may_be(server: Server) -> None:
    operation = ask(server, "/lists").document
    content = operation["requestBody"]["content"]
    parts = content["multipart/form-data"]["schema"]["properties"]
    assert {"type": "array", "items": {"type": "string"}} == parts["x"]
    assert [1, 2] == parts["y"]["default"]
    defaults = ask(server, "/box").document["requestBody"]["content"]["application/json"]["schema"]
    assert {"a": 1} == defaults["properties"]["data"]["default"]

    operation = ask(server, "/same").document
    content = operation["requestBody"]["content"]
    part = content["multipart/form-data"]["schema"]["properties"]["image"]
    assert {"type": "string", "format": "binary", "contentMediaType": "image/png"} == part
    assert "image/*" in content
    assert ["application/json", "image/*"] == [*operation["responses"]["200"]["content"]]


# -------------------------------------------------------------------- files


@pytest.mark.parametrize("size", [3, 200_000])
def test_a_file_keeps_its_name_and_its_content_type(server: Server, size: int) -> None:
    for filename, name in (
        ("cat.jpg", "cat.jpg"),
        ("C:/pictures/ä b.jpg", "ä b.jpg"),
        ("../../etc/x.jpg", "x.jpg"),
        (f"{'n' * 300}.jpg", f"{'n' * 251}.jpg"),
    ):
        body = form(("file", b"x" * size), file=("file", filename, "image/jpeg"))
        answer = ask(server, "/about", body, content_type=FORM)
        assert f"{name}|.jpg|image/jpeg|{name}|True|" == output(answer)
        assert f"{name} {size}" == output(ask(server, "/where", body, content_type=FORM))

    body = form(("file", b"x"), file=("file", "..", "application/octet-stream"))
    answer = output(ask(server, "/about", body, content_type=FORM))
    assert answer.startswith("||application/octet-stream|")
    body = form(("image", JPEG), file=("image", "cat.png", "image/png"))
    assert "cat.png image/jpeg a" == output(ask(server, "/rows", body, content_type=FORM))


def test_a_client_of_grpc_may_name_its_file(server: Server) -> None:
    client = grpc_client.InferenceServerClient(server.grpc_address)
    file = grpc_client.InferInput("file", [1], "BYTES")
    file.set_data_from_numpy(np.array([b"x"], object))

    def told(**parameters: str) -> bytes:
        named = {name.replace("_", ".", 1): value for name, value in parameters.items()}
        whole: bytes = client.infer("about", [file], parameters=named).as_numpy("output")[0]
        return whole

    assert told().startswith(b"||application/octet-stream|")
    assert b"a.csv|.csv|text/csv|a.csv|True|" == told(
        file_filename="a.csv", file_content_type="text/csv"
    )
    client.close()


def test_an_exported_function_sees_the_same(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", frontends=())
    (tmp_path / "media.py").write_text(SOURCE)
    assert 0 == run_export([str(tmp_path / "media.py"), str(server.repository)])
    with server:
        body = form(("file", b"x"), file=("file", "cat.jpg", "image/jpeg"))
        answer = ask(server, "/about", body, content_type=FORM)
        assert "cat.jpg|.jpg|image/jpeg|cat.jpg|True|" == output(answer)
