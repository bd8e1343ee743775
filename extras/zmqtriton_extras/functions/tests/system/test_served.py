"""Functions on a real server: plain JSON, forms, tensors over HTTP and gRPC, streams."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.standard.tools.run.test_run import run, save
from tests.stub import interpreters
from tests.support.needs import find_tool
from tests.support.server import Server, exchange, tensor
from tests.support.waiting import eventually
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

CAPTION = '''
from typing import Literal
from zmqtriton import Failed, model

@model(batch=16, delay_ms=50, instances=2)
class Caption:
    def __call__(
        self, text: list[str], words: int = 20, style: Literal["short", "long"] = "short"
    ) -> list[str]:
        """Describe a text."""
        if "bad" in text:
            raise Failed(text.index("bad"), "no text")
        return [f"{' '.join(each.split()[:words])} {style} {len(text)}" for each in text]
'''
TALK = """
from collections.abc import AsyncIterator
from zmqtriton import File, Image, model

@model
async def talk(text: str, times: int = 2) -> AsyncIterator[str]:
    for number in range(times):
        yield f"{text}{number}"
    if times > 5:
        raise ValueError("too often")

@model
async def size(image: Image, file: File | None = None) -> int:
    return len(image.data) + (len(file.data) if file else 0)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("functions")
    server = Server(directory, ["add_sub"], frontends=("grpc",))
    for name, source in (("caption", CAPTION), ("talk", TALK), ("size", TALK)):
        version = server.repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(source)
    with server:
        yield server


@pytest.mark.smoke
def test_plain_json_is_a_call(server: Server) -> None:
    assert (200, {"output": "a b short 1"}) == server.request_json("/caption", {"text": "a b"})
    full = {"text": "a b", "words": 1, "style": "long"}
    assert (200, {"output": "a long 1"}) == server.request_json("/caption", full)
    assert (500, {"error": "no text"}) == server.request_json("/caption", {"text": "bad"})


def test_wrong_arguments_are_told_with_their_place(server: Server) -> None:
    status, document = server.request_json("/caption", {"text": "a", "words": "x"})
    assert 422 == status
    assert [{"loc": ["words"], "msg": "expected int, got 'x'"}] == document["detail"]
    assert 422 == server.request_json("/caption", {})[0]
    assert 422 == server.request_json("/caption", [])[0]
    status, document = server.infer_json(
        "caption", tensor("text", "BYTES", ["a"], [1, 1]), tensor("style", "BYTES", ["x"], [1, 1])
    )
    assert (400, "style: expected one of 'short', 'long', got 'x'") == (status, document["error"])


def test_other_paths_are_not_there(server: Server) -> None:
    for path in ("/nothing", "/add_sub", "/caption/more", "/v2/nothing"):
        assert 404 == server.request_json(path, {"text": "a"})[0], path
    assert 404 == server.status("/caption")
    assert 404 == server.status("/nothing")


def test_curl_sends_documents_and_forms(server: Server, tmp_path: Path) -> None:
    curl = find_tool("curl")
    picture = tmp_path / "cat.jpg"
    picture.write_bytes(b"\xff" * 100_000)

    def ask(path: str, *words: str) -> Any:
        command = [curl, "-sS", f"{server.url}{path}", *words]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    assert {"output": "a short 1"} == ask("/caption", "-d", '{"text": "a b", "words": 1}')
    assert {"output": "a long 1"} == ask("/caption", "-F", "text=a", "-F", "style=long")
    assert {"output": 100_000} == ask("/size", "-F", f"image=@{picture}")
    files = ("-F", f"image=@{picture}", "-F", f"file=@{picture}")
    assert {"output": 200_000} == ask("/size", *files)


def test_requests_of_all_clients_meet_in_a_batch(server: Server) -> None:
    def ask(number: int) -> str:
        return server.request_json("/caption", {"text": str(number)})[1]["output"]

    with ThreadPoolExecutor(16) as threads:
        for _ in range(20):
            answers = list(threads.map(ask, range(16)))
            assert [str(n) for n in range(16)] == [answer.split()[0] for answer in answers]
            if any(not answer.endswith(" 1") for answer in answers):
                return
    raise AssertionError("no two requests have met")


def test_tensors_are_the_same_call(server: Server) -> None:
    client = grpc_client.InferenceServerClient(server.grpc_address)
    text = grpc_client.InferInput("text", [2, 1], "BYTES")
    text.set_data_from_numpy(np.array([["a b"], ["c"]], object))
    answer = client.infer("caption", [text])
    assert {b"a b short", b"c short"} == {
        row[0].rpartition(b" ")[0] for row in answer.as_numpy("output")
    }
    client.close()

    config = server.request_json("/v2/models/caption/config")[1]
    assert ("functions", 16) == (config["backend"], config["max_batch_size"])
    assert [("caption", 2)] == [(each["name"], each["count"]) for each in config["instance_group"]]


def test_a_generator_is_a_stream_of_events(server: Server) -> None:
    def events(document: Any) -> list[Any]:
        answer = server.exchange("/talk", json.dumps(document).encode())
        assert 200 == answer.status
        return [json.loads(each) for each in re.findall(rb"data: (.*)\n\n", answer.body)]

    assert [{"output": "a0"}, {"output": "a1"}] == events({"text": "a"})
    last = events({"text": "a", "times": 6})
    assert {"output": "a5"} == last[5]
    assert "ValueError: too often" in last[6]["error"]
    answer = server.exchange("/v2/models/talk/generate_stream", b'{"text": "a", "times": 1}')
    assert (200, True) == (answer.status, b'"output":"a0"' in answer.body)


def test_openapi_describes_each_function(server: Server) -> None:
    document = server.request_json("/openapi.json")[1]

    operation = document["paths"]["/caption"]["post"]
    assert "Describe a text." == operation["summary"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert ["text"] == schema["required"]
    assert {"enum": ["short", "long"], "default": "short"} == schema["properties"]["style"]
    assert "/add_sub" not in document["paths"]


def test_a_function_is_loaded_on_demand(tmp_path: Path) -> None:
    options = ("--model-control-mode=explicit", "--load-on-demand")
    server = Server(tmp_path / "server", options=options, frontends=())
    version = server.repository / "size" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(TALK)
    with server:
        assert (200, {"output": 3}) == server.request_json("/size", {"image": "AAAA"})
        assert 404 == server.request_json("/nothing", {"image": "AAAA"})[0]


def test_run_serves_every_function_of_a_file_and_loads_saves(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(TALK)
    with run(tmp_path, "app.py", "--reload") as running:
        eventually(lambda: "size is served" in running.text, 30, "both functions")
        found = re.search(r"http://(\S+:\d+)", running.text)
        assert found is not None
        url = f"http://{found[1]}"

        def talk() -> bytes:
            return exchange(_post(f"{url}/talk", {"text": "a", "times": 1})).body

        assert b"a0" in talk()
        save(file, TALK.replace('f"{text}{number}"', '"other"'))
        eventually(lambda: b"other" in talk(), 30, "the saved file")


def _post(url: str, document: Any) -> Any:
    import urllib.request

    return urllib.request.Request(url, json.dumps(document).encode())


ROUTES = """
from zmqtriton.routes import route

@route("POST /")
def hello(request, infer):
    return {"text": "hello"}
"""


def test_a_token_is_good_for_functions_that_it_names_also_beside_routes(tmp_path: Path) -> None:
    secrets = {name: f"zmqt_a-secret-of-{name}-0123456789" for name in ("size", "other")}
    scopes = token_file.parse_scopes("infer")
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "".join(
            Grant(name, token_file.digest(secret), scopes, (name,)).line() + "\n"
            for name, secret in secrets.items()
        )
    )
    tokens.chmod(0o600)
    options = ("--routes", f"--tokens={tokens}")
    server = Server(tmp_path / "server", options=options, frontends=())
    parameter = '{ key: "ROUTES_PATH" value { string_value: "/api" } }'
    for name in ("size", "other"):
        version = server.repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(TALK.replace("def talk", "def other"))
    (server.repository / "other" / "config.pbtxt").write_text(f"parameters {parameter}")
    (server.repository / "other" / "1" / "routes.py").write_text(ROUTES)
    with server:

        def ask(path: str, name: str = "") -> int:
            headers = {"Authorization": f"Bearer {secrets[name]}"} if name else {}
            return server.exchange(path, b'{"image": "AAAA"}', headers).status

        assert (200, 403, 401) == (ask("/size", "size"), ask("/size", "other"), ask("/size"))
        assert (404, 401) == (ask("/nothing", "size"), ask("/nothing"))
        eventually(lambda: ask("/api", "other") == 200, 30, "the routes")
        described = {
            name: "/size"
            in server.exchange(
                "/openapi.json", headers={"Authorization": f"Bearer {secret}"}
            ).document["paths"]
            for name, secret in secrets.items()
        }
        assert {"size": True, "other": False} == described


WHERE = """
import os
import sys
from typing import List
from zmqtriton import model

@model(batch=4, instances=2)
class Where:
    def __init__(self) -> None:
        self.python = "%d.%d" % sys.version_info[:2]

    def __call__(self, text: List[str]) -> List[str]:
        return [f"{each} {self.python}" for each in text]
"""


def test_functions_run_wherever_models_do(tmp_path: Path) -> None:
    parameters = {
        "forks": ("INSTANCES", "forks"),
        "threads": ("INSTANCES", "threads"),
        "old": ("PYTHON_EXECUTABLE", interpreters.python_or_skip("3.8")),
    }
    server = Server(tmp_path / "server", frontends=())
    for name, (key, value) in parameters.items():
        config = f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        server.write_model(name, config, WHERE)
    with server:
        own = ".".join(map(str, sys.version_info[:2]))
        for name, version in (("forks", own), ("threads", own), ("old", "3.8")):
            for _ in range(4):
                answer = server.request_json(f"/{name}", {"text": "a"})
                assert (200, {"output": f"a {version}"}) == answer, name
