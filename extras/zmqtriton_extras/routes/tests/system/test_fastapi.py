"""A FastAPI application in place of a model's routes: uploads, streams, errors, its description."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import ROOT, find_tool, skip_missing
from tests.support.server import Server
from tests.system.docs.examples import read_blocks
from zmqtriton_extras.jobs.tests.asking import Reply, ask
from zmqtriton_extras.routes.tests.system.test_routes import CONFIG, MODEL

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "extras/routes/system/test_routes.py::test_an_application_stands_in_place_of_routes",
        "extras/routes/system/test_routes.py::test_errors_have_their_status_and_no_secrets",
        "extras/routes/system/test_routes.py::test_each_route_is_described",
    ),
]

ROUTES = '''
import asyncio
from contextlib import asynccontextmanager

from fastapi import FastAPI, File, HTTPException, Request, UploadFile
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from zmqtriton.routes import infer

states = []


@asynccontextmanager
async def lifespan(app):
    states.append("started")
    yield
    states.append("stopped")


app = FastAPI(title="ocr", lifespan=lifespan)


class Page(BaseModel):
    text: str
    number: int = 1


@app.post("/ocr")
async def ocr(request: Request, file: UploadFile = File(...)) -> Page:
    """Read a page."""
    response = await request.state.infer({"IMAGE": await file.read()})
    return Page(text=response["TEXT"][0].decode())


@app.post("/pages")
async def pages(page: Page) -> Page:
    return page.model_copy(update={"number": page.number + 1})


@app.get("/lines/{count}", summary="Some lines")
async def lines(count: int):
    async def parts():
        for number in range(count):
            response = await infer({"IMAGE": bytes(number)})
            yield response["TEXT"][0] + b"\\n"

    return StreamingResponse(parts(), media_type="text/plain")


@app.get("/teapot")
async def teapot():
    raise HTTPException(418, "short and stout")


@app.get("/fails")
def fails():
    raise ValueError("secret")


@app.get("/states")
def show():
    return states


@app.get("/hangs")
async def hangs():
    await asyncio.sleep(1000)
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for module in ("fastapi", "python_multipart"):
        if find_spec(module) is None:
            skip_missing(module)
    server = Server(tmp_path_factory.mktemp("fastapi"), [], options=["--routes"])
    parameter = 'parameters { key: "ROUTES_PATH" value { string_value: "/api/ocr" } }\n'
    [example] = [
        block.text
        for block in read_blocks(ROOT / "docs/guides/routes.md", ROOT)
        if "FastAPI" in block.text
    ]
    for name, config, routes in (("ocr", CONFIG + parameter, ROUTES), ("page", CONFIG, example)):
        directory = server.repository / name
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text(config)
        (directory / "1" / "model.py").write_text(MODEL)
        (directory / "1" / "routes.py").write_text(routes)
    with server:
        yield server


def test_a_file_is_uploaded(server: Server, tmp_path: Path) -> None:
    page = tmp_path / "page.jpg"
    page.write_bytes(bytes(2 << 20))
    for root in ("/api/ocr", "/models/ocr", "/models/page"):
        words = [find_tool("curl"), "-s", "-F", f"file=@{page}", f"{server.url}{root}/ocr"]

        answer = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

        assert answer["text"] == "2097152 5647f05e"


def test_a_document_is_checked_and_an_answer_streamed(server: Server) -> None:
    right = ask(server, "/api/ocr/pages", b'{"text": "x"}', {"Content-Type": "application/json"})
    wrong = ask(server, "/api/ocr/pages", b'{"text": 1}', {"Content-Type": "application/json"})
    lines = ask(server, "/api/ocr/lines/3")

    assert right.document == {"text": "x", "number": 2}
    assert (wrong.status, wrong.document["detail"][0]["loc"]) == (422, ["body", "text"])
    assert lines.body.decode().split("\n")[:-1] == ["0 e3b0c442", "1 6e340b9c", "2 96a296d2"]
    assert "text/plain" in lines.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("teapot", 418, "short and stout"),
        ("fails", 500, "Internal Server Error"),
        ("nothing", 404, "Not Found"),
        ("hangs", 504, "within 4 s"),
    ],
)
def test_errors_are_the_application_s(server: Server, path: str, status: int, text: str) -> None:
    reply = ask(server, f"/api/ocr/{path}")

    assert (status, True) == (reply.status, text in reply.body.decode())
    assert b"secret" not in reply.body
    assert ask(server, "/api/ocr/states").document == ["started"]


def test_its_description_is_part_of_the_server_s(server: Server) -> None:
    own, whole = (_document(ask(server, f"{root}/openapi.json")) for root in ("/api/ocr", ""))

    operations = {
        (path, method): operation
        for path, each in whole["paths"].items()
        for method, operation in each.items()
        if operation["tags"] == ["ocr.routes"]
    }
    assert {
        (f"/api/ocr{path}", method) for path, each in own["paths"].items() for method in each
    } == operations.keys()
    assert operations["/api/ocr/lines/{count}", "get"]["summary"] == "Some lines"
    schemas = whole["components"]["schemas"]
    for reference in _references(operations):
        assert reference.removeprefix("#/components/schemas/") in schemas
    assert "ocr.Page" in schemas


def _document(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    return reply.document


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
