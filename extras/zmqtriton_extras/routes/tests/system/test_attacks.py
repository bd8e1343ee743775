"""Very many requests to routes that hang or are not read, and giant forms: others go on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.raw_http import connect_narrow, raw_request
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ask
from zmqtriton_extras.routes.tests.system.test_routes import CONFIG, MODEL, form

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "extras/routes/system/test_routes.py::test_a_route_that_hangs_fails_alone",
        "extras/routes/system/test_routes.py::test_a_reader_that_stops_holds_a_flood",
        "extras/routes/system/test_routes.py::test_a_form_is_bounded",
    ),
]

MIB = 1 << 20
ROUTES = """
import asyncio
import os
import time

from zmqtriton.routes import route

@route("GET /pid")
async def pid(request, infer):
    return os.getpid()


@route("GET /large")
async def large(request, infer):
    return bytes(3 << 20)


@route("GET /thread")
def thread(request, infer):
    return os.getpid()


@route("GET /sleeps")
def sleeps(request, infer):
    time.sleep(1000)


@route("GET /hangs")
async def hangs(request, infer):
    await asyncio.sleep(1000)


@route("GET /flood")
async def flood(request, infer):
    while True:
        yield bytes(1 << 20)


@route("POST /form")
async def read_form(request, infer):
    return {name: len(file.view) for name, file in request.files.items()}
"""


def serve(directory: Path) -> Server:
    options = ["--routes", f"--http-max-input-size={16 * MIB}"]
    server = Server(directory, ["identity_fp32"], options=options)
    files = server.repository / "ocr"
    (files / "1").mkdir(parents=True)
    # floods that are not read have 16 MiB each
    config = CONFIG.replace("500M", "4G")
    (files / "config.pbtxt").write_text(config)
    (files / "1" / "model.py").write_text(MODEL)
    (files / "1" / "routes.py").write_text(ROUTES)
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("attacks")) as server:
        yield server


def pid_of(server: Server, path: str = "pid") -> int:
    reply = ask(server, f"/models/ocr/{path}")
    return int(reply.document) if reply.status == 200 else 0


def test_routes_that_hang_leave_others_their_turn(server: Server) -> None:
    pid = pid_of(server)
    with ThreadPoolExecutor(40) as clients:
        late = [clients.submit(ask, server, "/models/ocr/hangs") for _ in range(40)]

        assert pid == pid_of(server) == pid_of(server, "thread")
        assert [each.result().status for each in late] == [504] * 40
    assert pid == pid_of(server)


def test_threads_that_never_end_end_their_process(tmp_path: Path) -> None:
    # its own: some may be executed by the next process, too, and end that one as well
    with serve(tmp_path) as server:
        pid = pid_of(server)
        with ThreadPoolExecutor(40) as clients:
            late = [clients.submit(ask, server, "/models/ocr/sleeps") for _ in range(40)]

            assert {504} == {each.result().status for each in late}
        eventually(lambda: pid_of(server, "thread") not in (0, pid), 60)
        eventually(lambda: "hangs in" in server.log_text(), 60)


def test_answers_that_are_not_read_hold_up_no_other(server: Server) -> None:
    pid = pid_of(server)
    with ExitStack() as stack:
        for _ in range(80):
            client = stack.enter_context(connect_narrow(server.http_port))
            client.sendall(raw_request("GET", "/models/ocr/flood"))
        for _ in range(3):
            assert len(ask(server, "/models/ocr/large").body) == 3 * MIB
    assert pid == pid_of(server)


@pytest.mark.parametrize(("size", "status"), [(15 * MIB, 200), (17 * MIB, 400)])
def test_a_giant_form_is_as_large_as_the_server_says(
    server: Server, size: int, status: int
) -> None:
    body, headers = form(('name="file"; filename="a"', bytes(size)))

    reply = ask(server, "/models/ocr/form", body, headers)

    assert status == reply.status, reply.body
    if status == 200:
        assert {"file": size} == reply.document
    else:
        assert "exceeds the maximum" in reply.document["error"]
