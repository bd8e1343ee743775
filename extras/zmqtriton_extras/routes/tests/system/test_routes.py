"""A model's own routes on a real server: asked by curl and by a client of Python."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.support.needs import find_tool
from tests.support.raw_http import raw_request, send_raw
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ask
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

pytestmark = pytest.mark.system

CONFIG = """
backend: "python"
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
parameters { key: "ROUTES_SECONDS" value { string_value: "4" } }
parameters { key: "max_memory_bytes" value { string_value: "500M" } }
"""
MODEL = """
import hashlib
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()[0]
            if image == b"bad":
                error = pb_utils.TritonError("no picture", pb_utils.TritonError.INVALID_ARG)
                answers.append(pb_utils.InferenceResponse(error=error))
                continue
            text = f"{len(image)} {hashlib.sha256(image).hexdigest()[:8]}"
            output = pb_utils.Tensor("TEXT", np.array([text.encode()], np.object_))
            answers.append(pb_utils.InferenceResponse([output]))
        return answers
"""
ROUTES = """
import asyncio
import os
import sys
import time

import numpy as np
from helper import EDITION
from zmqtriton.routes import File, Response, RouteError, route

kept = []


@route("POST /ocr")
async def ocr(request, infer):
    response = await infer({"IMAGE": request.files["file"].bytes})
    name = request.files["file"].filename
    return {"text": response["TEXT"].tolist(), "name": name, **request.form}


@route("POST /raw")
async def raw(request, infer):
    return (await infer({"IMAGE": request.bytes}))["TEXT"].tolist()[0]


@route("GET /pages/{page}/{rest:path}")
def page(request, infer):
    return {**request.params, "query": request.query, "agent": request.headers.get("user-agent")}


@route("GET /edition")
def edition(request, infer):
    return {"edition": EDITION, "pid": os.getpid()}


@route("POST /echo")
async def echo(request, infer):
    return Response(request.json(), 201, {"x-own": "yes"})


@route("GET /events")
async def events(request, infer):
    for number in range(3):
        yield {"number": number}
        await asyncio.sleep(0.01)


@route("GET /flood")
async def flood(request, infer):
    while True:
        yield bytes(1 << 20)


@route("GET /leaks")
async def leaks(request, infer):
    kept.append(b"x" * (100 << 20))


@route("GET /breaks")
async def breaks(request, infer):
    yield "one"
    raise ValueError("secret")


@route("GET /header")
async def header(request, infer):
    return Response("x", 200, [("x-a", request.query["value"])])


class Fall(BaseException):
    pass


@route("GET /falls")
def falls(request, infer):
    raise Fall("secret")


@route("GET /falls-in-turn")
async def falls_in_turn(request, infer):
    raise Fall("secret")


@route("GET /fails")
def fails(request, infer):
    raise ValueError("secret")


@route("GET /teapot")
def teapot(request, infer):
    raise RouteError(418, "short and stout")


@route("GET /other")
async def other(request, infer):
    '''Ask another model.

    With the rights of this one.
    '''
    response = await infer({"INPUT0": np.ones((1,), np.float32)}, model="identity_fp32")
    return response["OUTPUT0"].tolist()


@route("GET /tokens")
async def tokens(request, infer):
    inputs = {"DIRECTORY": np.array([request.query["in"].encode()], np.object_)}
    async for outputs in infer.stream(inputs, model="slow"):
        yield outputs["TEXT"][0]


@route("GET /hangs")
async def hangs(request, infer):
    await asyncio.sleep(1000)


@route("GET /blocks")
async def blocks(request, infer):
    time.sleep(1000)


@route("GET /dies")
async def dies(request, infer):
    os._exit(3)
"""
#: Its second response waits until that is allowed.
SLOW_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
input [ { name: "DIRECTORY" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
SLOW_MODEL = """
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def response(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", np.array([text], np.object_))])


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.stream, args=(request,)).start()

    def stream(self, request):
        directory = pb_utils.get_input_tensor_by_name(request, "DIRECTORY").as_numpy()[0].decode()
        sender = request.get_response_sender()
        sender.send(response(b"one"))
        while not os.path.exists(os.path.join(directory, "released")):
            if request.is_cancelled():
                open(os.path.join(directory, "cancelled"), "x").close()
                break
            time.sleep(0.01)
        sender.send(response(b"two"), 1)
"""
NODE = """
const form = new FormData();
form.append("file", new Blob(["12345"]), "page.jpg");
form.append("lang", "en");
fetch(process.argv[1], {method: "POST", body: form}).then(async (answer) => {
  console.log(await answer.text());
});
"""
APPLICATION = """
from contextlib import asynccontextmanager

started = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            event = await receive()
            started.append(event["type"])
            await send({"type": event["type"] + ".complete"})
            if event["type"].endswith("shutdown"):
                return
    body = (await receive())["body"]
    response = await scope["state"]["infer"]({"IMAGE": body})
    parts = [scope["method"], scope["root_path"], scope["path"], scope["query_string"].decode()]
    headers = [(b"content-type", b"text/plain"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    for part in (*parts, response["TEXT"][0].decode(), *started):
        await send({"type": "http.response.body", "body": f"{part}\\n".encode(), "more_body": True})
    await send({"type": "http.response.body"})
"""


def add_model(server: Server, name: str, routes: str) -> Path:
    directory = server.repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(CONFIG)
    (directory / "1" / "model.py").write_text(MODEL)
    (directory / "1" / "helper.py").write_text("EDITION = 1\n")
    (directory / "1" / "routes.py").write_text(routes)
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("routes")
    server = Server(directory, ["identity_fp32"], options=["--routes"])
    add_model(server, "ocr", ROUTES)
    add_model(server, "app", APPLICATION)
    slow = add_model(server, "slow", "")
    (slow / "config.pbtxt").write_text(SLOW_CONFIG)
    (slow / "1" / "model.py").write_text(SLOW_MODEL)
    (slow / "1" / "routes.py").unlink()
    with server:
        yield server


def form(*parts: tuple[str, bytes]) -> tuple[bytes, dict[str, str]]:
    body = b"".join(
        b"--b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (head.encode(), content)
        for head, content in parts
    )
    return body + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_curl_sends_a_file(server: Server, tmp_path: Path, size: int) -> None:
    page = tmp_path / "page.jpg"
    page.write_bytes(os.urandom(size))
    url = f"{server.url}/models/ocr/ocr"
    words = [find_tool("curl"), "-s", "-F", f"file=@{page}", "-F", "lang=en", url]

    answer = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

    assert [f"{size} "] == [text[: len(str(size)) + 1] for text in answer["text"]]
    assert (answer["name"], answer["lang"]) == ("page.jpg", "en")


def test_node_sends_a_file(server: Server) -> None:
    words = [find_tool("node"), "-e", NODE, f"{server.url}/models/ocr/ocr"]

    answer = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

    assert (answer["text"][0][:2], answer["name"], answer["lang"]) == ("5 ", "page.jpg", "en")


def test_a_body_a_path_a_query_and_headers_are_the_route_s(server: Server) -> None:
    raw = ask(server, "/models/ocr/raw", b"12345")
    page = ask(server, "/models/ocr/pages/7/a/b?x=1&y=", headers={"User-Agent": "me"})
    echo = ask(server, "/models/ocr/echo", b'{"a": [1]}')

    assert (raw.status, raw.body) == (200, b"5 5994471a")
    assert (page.document) == {
        "page": "7",
        "rest": "a/b",
        "query": {"x": "1", "y": ""},
        "agent": "me",
    }
    assert (echo.status, echo.headers["x-own"], echo.document) == (201, "yes", {"a": [1]})


def test_a_generator_is_a_stream_of_events(server: Server) -> None:
    reply = ask(server, "/models/ocr/events")

    assert reply.headers["content-type"] == "text/event-stream"
    assert [{"number": n} for n in range(3)] == [
        json.loads(line[6:]) for line in reply.body.decode().splitlines() if line
    ]


def test_a_model_s_stream_lets_other_routes_go_on(server: Server, tmp_path: Path) -> None:
    url = f"{server.url}/models/ocr/tokens?in={tmp_path}"
    with urllib.request.urlopen(url, timeout=60) as stream:
        assert stream.read(3) == b"one"

        assert ask(server, "/models/ocr/edition").status == 200
        (tmp_path / "released").touch()

        assert stream.read() == b"two"
    (tmp_path / "released").unlink()
    with urllib.request.urlopen(url, timeout=60) as stream:
        assert stream.read(3) == b"one"
    eventually((tmp_path / "cancelled").exists, 60)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("ocr/nothing", None, 404, "Not Found"),
        ("ocr/echo", None, 405, "Method Not Allowed"),
        ("ocr/echo", b"{", 400, "the body must be JSON"),
        ("ocr/ocr", b"x", 400, "the request has no 'file'; add it"),
        ("ocr/raw", b"bad", 400, "no picture"),
        ("ocr/fails", None, 500, "the route has failed, see the model's log: ValueError"),
        ("ocr/falls", None, 500, "the route has failed, see the model's log: Fall"),
        ("ocr/falls-in-turn", None, 500, "the route has failed, see the model's log: Fall"),
        ("ocr/teapot", None, 418, "short and stout"),
        (
            "identity_fp32/x",
            None,
            404,
            "model 'identity_fp32' has no routes: write a routes.py next to its model.py",
        ),
        ("missing/x", None, 400, "unknown model"),
        ("ocr/../../v2/health/live", None, 404, "Not Found"),
        ("ocr/%2e%2e/edition", None, 404, "Not Found"),
        ("..%2focr/edition", None, 400, "unknown model"),
        ("ocr/header?value=a%0d%0aX-Injected:%201", None, 500, "an invalid header"),
    ],
)
def test_errors_have_their_status_and_no_secrets(
    server: Server, path: str, body: bytes | None, status: int, text: str
) -> None:
    reply = ask(server, f"/models/{path}", body)

    assert (status, True) == (reply.status, text in reply.document["error"])
    assert b"secret" not in reply.body
    assert "X-Injected" not in reply.headers


def test_a_stream_that_breaks_is_not_whole(server: Server) -> None:
    begin = len(server.log_text())
    got = send_raw(server.http_port, raw_request("GET", "/models/ocr/breaks"))

    assert b"one" in got.data
    assert not got.data.endswith(b"0\r\n\r\n")
    assert got.is_closed
    # the log has what the route has raised, and no fault of the server
    assert "could not answer" not in server.log_text()[begin:]


def test_a_model_of_routes_has_none_of_its_own(server: Server) -> None:
    reply = ask(server, "/models/ocr.routes/ocr")

    assert (reply.status, reply.document["error"]) == (
        404,
        "model 'ocr.routes' has no routes: write a routes.py next to its model.py",
    )


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([('name="file"; filename="a"', b"x")] * 1001, 413),
        ([("file", b"x")], 400),
        ([('name="file"; filename="a"; ' + "x" * 9000, b"x")], 400),
    ],
)
def test_a_form_is_bounded(server: Server, parts: list[tuple[str, bytes]], status: int) -> None:
    body, headers = form(*parts)

    assert status == ask(server, "/models/ocr/ocr", body, headers).status


def test_an_application_stands_in_place_of_routes(server: Server) -> None:
    reply = ask(server, "/models/app/any/path?q=1", b"12345")

    expected = ["POST", "/models/app", "/models/app/any/path", "q=1", "5 5994471a"]
    assert (202, [*expected, "lifespan.startup"]) == (
        reply.status,
        reply.body.decode().split("\n")[:6],
    )


def test_an_application_shuts_down_with_its_server(tmp_path: Path) -> None:
    events = tmp_path / "events"
    code = APPLICATION.replace(
        '            started.append(event["type"])\n',
        f"            with open({str(events)!r}, 'a') as file:\n"
        "                file.write(event['type'] + '\\n')\n",
    )
    assert code != APPLICATION
    server = Server(tmp_path / "s", [], options=["--routes"], frontends=(), stub_user="")
    add_model(server, "app", code)
    with server:
        assert ask(server, "/models/app/x", b"1").status == 202

    assert events.read_text().split() == ["lifespan.startup", "lifespan.shutdown"]


def test_a_route_that_hangs_fails_alone(server: Server) -> None:
    pid = ask(server, "/models/ocr/edition").document["pid"]

    late = ask(server, "/models/ocr/hangs")

    assert (late.status, "within 4 s" in late.document["error"]) == (504, True)
    assert pid == ask(server, "/models/ocr/edition").document["pid"]


def test_a_route_that_leaks_is_replaced_at_its_limit(server: Server) -> None:
    pid = ask(server, "/models/ocr/edition").document["pid"]

    def is_replaced() -> bool:
        ask(server, "/models/ocr/leaks")
        reply = ask(server, "/models/ocr/edition")
        return reply.status == 200 and reply.document["pid"] != pid

    eventually(is_replaced, 60)
    assert ask(server, "/models/app/x", b"1").status == 202


def test_forms_that_come_slowly_or_never_end_hold_up_no_other(server: Server) -> None:
    body, headers = form(('name="file"; filename="a"', b"x" * 1000))
    head = raw_request("POST", "/models/ocr/ocr", body, **headers)[:-900]
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        for _ in range(100):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
            client.sendall(head)
            sockets.append(client)
        for byte in b"xx":
            for client in sockets:
                client.sendall(bytes((byte,)))
            reply = ask(server, "/models/ocr/ocr", body, headers)
            assert (reply.status, reply.document["text"][0][:5]) == (200, "1000 ")


@pytest.mark.parametrize("path", ["dies", "blocks"])
def test_a_route_that_ends_its_process_hurts_its_model_alone(server: Server, path: str) -> None:
    pid = ask(server, "/models/ocr/edition").document["pid"]

    lost = ask(server, f"/models/ocr/{path}")

    assert lost.status == 503, lost.body
    eventually(lambda: ask(server, "/models/ocr/edition").status == 200, 60)
    assert pid != ask(server, "/models/ocr/edition").document["pid"]
    assert ask(server, "/models/app/x", b"1").status == 202
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_reader_that_stops_holds_a_flood(server: Server) -> None:
    words = [
        find_tool("curl"),
        "-s",
        "--limit-rate",
        "1M",
        "-m",
        "4",
        f"{server.url}/models/ocr/flood",
    ]
    reading = subprocess.run([*words, "-o", os.devnull], check=False)

    assert reading.returncode == 28, "it is read to the end of its time"
    assert ask(server, "/models/ocr/edition").status == 200


def test_a_reload_has_the_new_routes_without_a_failed_request(server: Server) -> None:
    directory = server.repository / "ocr" / "1"
    (directory / "helper.py").write_text("EDITION = 2\n")
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{server.http_port}"]
    subprocess.run([*command, "reload", "ocr"], check=True, capture_output=True)

    seen = []
    end_s = time.monotonic() + 60
    while 2 not in seen and time.monotonic() < end_s:
        reply = ask(server, "/models/ocr/edition")
        assert reply.status == 200, reply.body
        seen.append(reply.document["edition"])

    assert seen[-1] == 2


def test_each_route_is_described(server: Server) -> None:
    document = ask(server, "/openapi.json").document

    paths = {path: each for path, each in document["paths"].items() if "/models/ocr/" in path[:12]}
    assert {"GET", "POST"} == {method.upper() for each in paths.values() for method in each}
    other = paths["/models/ocr/other"]["get"]
    assert (
        other["summary"],
        other["description"],
        other["tags"],
    ) == ("Ask another model.", "With the rights of this one.", ["ocr.routes"])
    page = paths["/models/ocr/pages/{page}/{rest}"]["get"]
    assert [parameter["name"] for parameter in page["parameters"]] == ["page", "rest"]
    assert "requestBody" in paths["/models/ocr/echo"]["post"]
    assert {"name": "ocr.routes"} in document["tags"]
    assert not [path for path in document["paths"] if "{rest" in path and "/ocr/" not in path]


def test_routes_come_and_go_with_their_model(tmp_path: Path) -> None:
    options = ["--routes", "--model-control-mode=explicit", "--load-model=ocr"]
    server = Server(tmp_path, [], options=options)
    add_model(server, "ocr", ROUTES)
    with server:
        assert ask(server, "/models/ocr/edition").status == 200

        server.control_model("unload", "ocr")
        assert ask(server, "/models/ocr/edition").status == 404
        eventually(lambda: not server.stub_pids("ocr") + server.stub_pids("ocr.routes"), 60)

        server.control_model("load", "ocr")
        assert ask(server, "/models/ocr/edition").status == 200


@pytest.mark.long(
    "extras/routes/system/test_routes.py::test_routes_come_and_go_with_their_model",
    "extras/routes/system/test_routes.py::test_a_reload_has_the_new_routes_without_a_failed_request",
)
def test_a_repository_that_is_polled_has_routes_and_their_changes(tmp_path: Path) -> None:
    options = ["--routes", "--model-control-mode=poll", "--repository-poll-secs=1"]
    server = Server(tmp_path, [], options=options)
    directory = add_model(server, "ocr", ROUTES)
    with server:
        assert ask(server, "/models/ocr/edition").status == 200

        (directory / "1" / "routes.py").write_text(ROUTES.replace("/edition", "/changed"))

        eventually(lambda: ask(server, "/models/ocr/changed").status == 200, 60)
        assert ask(server, "/models/ocr/edition").status == 404


@pytest.mark.long(
    "extras/routes/system/test_routes.py::test_a_route_that_ends_its_process_hurts_its_model_alone",
    "extras/routes/system/test_routes.py::test_routes_come_and_go_with_their_model",
)
def test_a_killed_process_leaves_routes_or_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path, [], options=["--routes"])
    add_model(server, "ocr", ROUTES)

    def is_replaced(role: str, before: list[int]) -> bool:
        return server.pids().get(role, before) not in (before, [])

    with server:
        assert ask(server, "/models/ocr/edition").status == 200
        for role in ("routes", "broker"):
            before = server.pids()[role]

            os.kill(before[0], signal.SIGKILL)

            eventually(partial(is_replaced, role, before), 60)
            eventually(lambda: ask(server, "/models/ocr/raw", b"1").status == 200, 60)


def test_a_token_is_good_for_the_routes_of_its_models(tmp_path: Path) -> None:
    secrets = {name: f"zmqt_a-secret-of-{name}-0123456789" for name in ("ocr", "other", "all")}
    models = {"ocr": ("ocr",), "other": ("identity_fp32",), "all": ALL_MODELS}
    scopes = token_file.parse_scopes("infer")
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "".join(
            Grant(name, token_file.Grant.digest_of(secret), scopes, models[name]).line() + "\n"
            for name, secret in secrets.items()
        )
    )
    tokens.chmod(0o600)
    server = Server(tmp_path, ["identity_fp32"], options=["--routes", f"--tokens={tokens}"])
    add_model(server, "ocr", ROUTES)
    with server:
        statuses = {
            name: ask(server, "/models/ocr/raw", b"1", {"Authorization": f"Bearer {secret}"}).status
            for name, secret in secrets.items()
        }

        assert statuses == {"ocr": 200, "other": 403, "all": 200}
        # what routes ask is asked by the model's code, whoever its client is
        own = {"Authorization": f"Bearer {secrets['ocr']}"}
        assert ask(server, "/models/ocr/other", headers=own).document == [1.0]
        assert ask(server, "/v2/models/identity_fp32", headers=own).status == 403
        assert ask(server, "/models/ocr/raw", b"1").status == 401
        described = {
            name: "/models/ocr/raw"
            in ask(server, "/openapi.json", headers={"Authorization": f"Bearer {secret}"}).document[
                "paths"
            ]
            for name, secret in secrets.items()
        }
        assert described == {"ocr": True, "other": False, "all": True}
