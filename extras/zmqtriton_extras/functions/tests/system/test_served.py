"""Functions on a real server: plain JSON, forms, tensors over HTTP and gRPC, streams."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
import zmq

import zmqtriton
from tests.stub import interpreters
from tests.support.needs import find_tool
from tests.support.server import Server, exchange, tensor
from tests.support.waiting import eventually
from zmqtriton_extras.authoring.tests.run.test_run import run, save
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

NONE: Mapping[str, str] = {}
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
import hashlib
from collections.abc import AsyncIterator
from zmqtriton import File, Image, model

@model
async def talk(text: str, times: int = 2) -> AsyncIterator[str]:
    for number in range(times):
        yield f"{text}{number}"
    if times > 5:
        raise ValueError("too often")

@model
def digest(file: File, salt: str) -> str:
    size = len(file.data)
    with open(file.path, "rb") as data:
        whole = data.read()
    assert "data" not in vars(file) and whole == file.data
    return f"{size} {hashlib.sha256(whole + salt.encode()).hexdigest()}"

@model
async def size(image: Image, file: File | None = None) -> int:
    return len(image.data) + (len(file.data) if file else 0)
"""


@pytest.fixture(scope="module", autouse=True)
def zmq_threads() -> None:
    """Start libzmq's threads, which stay for the life of the process."""
    zmq.Context.instance().socket(zmq.SUB).close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("functions")
    server = Server(directory, ["add_sub"], options=("--allow-openai",), frontends=("grpc",))
    for name, source in (
        ("caption", CAPTION),
        *((name, TALK) for name in ("talk", "size", "digest")),
    ):
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
    assert [{"loc": ["words"], "msg": "expected int, got a text of 1 letter"}] == document["detail"]
    assert 422 == server.request_json("/caption", {})[0]
    assert 422 == server.request_json("/caption", [])[0]
    status, document = server.infer_json(
        "caption", tensor("text", "BYTES", ["a"], [1, 1]), tensor("style", "BYTES", ["x"], [1, 1])
    )
    assert (400, "style: expected one of 'short', 'long', got a text of 1 letter") == (
        status,
        document["error"],
    )


def ask_by(server: Server, method: str, path: str, headers: Mapping[str, str] = NONE) -> int:
    """The status of a request with this method."""
    body = b'{"image": "AAAA"}' if method == "POST" else None
    url = f"{server.url}{path}"
    return exchange(urllib.request.Request(url, body, dict(headers), method=method)).status


def test_other_paths_are_not_there(server: Server) -> None:
    for path in ("/nothing", "/add_sub", "/caption/more", "/v2/nothing"):
        assert 404 == server.request_json(path, {"text": "a"})[0], path
    for method in ("GET", "OPTIONS", "HEAD", "PUT", "DELETE", "PATCH"):
        assert 404 == ask_by(server, method, "/nothing"), method


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


def test_bodies_may_be_compressed(server: Server) -> None:
    body = gzip.compress(b'{"text": "a b", "words": 1}')
    answer = server.exchange("/caption", body, {"Content-Encoding": "gzip"})
    assert {"output": "a short 1"} == answer.document
    for coding, data in (("br", body), ("gzip", b"{}"), ("gzip", body[:-9])):
        answer = server.exchange("/caption", data, {"Content-Encoding": coding})
        assert answer.status in (422, 501), (coding, answer.body)


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
    assert [] == events({"text": "a", "times": 0})
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
    style = {"type": "string", "enum": ["short", "long"], "default": "short"}
    assert style == schema["properties"]["style"]
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


MORE = """
@model
def more(text: str) -> str:
    return text * 2
"""


def test_run_follows_functions_that_are_added_renamed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(TALK)
    with run(tmp_path, "app.py", "--reload") as running:
        found = re.search(r"http://(\S+:\d+)", running.text)
        assert found is not None
        url = f"http://{found[1]}"

        def status(name: str) -> int:
            return exchange(_post(f"{url}/{name}", {"text": "a"})).status

        assert 404 == status("more")
        save(file, TALK + MORE)
        eventually(lambda: status("more") == 200, 30, "the added function")
        save(file, TALK + MORE.replace("more", "twice"))
        eventually(lambda: status("twice") == 200, 30, "the function by its new name")
        eventually(lambda: status("more") == 404, 30, "no function by its old name")
        save(file, TALK + MORE.replace("more", "twice") + "x = (")
        eventually(lambda: "talk: still served" in running.text, 30, "the reason")
        assert 200 == status("twice")
        save(file, MORE.replace("more", "talk").join(["from zmqtriton import model\n", ""]))
        eventually(lambda: status("twice") == 404, 30, "only the function that is left")
        assert 200 == status("talk")

    said = running.text
    assert all(f"model '{name}' was added" in said for name in ("more", "twice"))
    assert all(f"model '{name}' was removed" in said for name in ("more", "twice", "size"))
    assert "still served" not in said.rpartition("was removed")[2]


EVERY_KIND = """
import dataclasses
from typing import Dict, Iterator, List, Literal, Optional, TypedDict
from zmqtriton import Array, Audio, File, Image, model

class Pair(TypedDict):
    left: float
    right: Optional[str]

@dataclasses.dataclass
class Point:
    x: int
    pair: Pair
    tags: List[str]

@model(batch=4)
def rows(text: List[str], number: Array["INT8", -1], grid: Array["BOOL", -1, 2, -1]) -> List[str]:
    return [f"{each} {number} {grid.shape}" for each in text]

@model
def each(
    point: Point, counts: Dict[str, int], sound: Audio, file: File, data: bytes, is_loud: bool,
    style: Literal["it's", "b"], words: Array["BYTES", -1], share: float, times: int = 3
) -> Iterator[str]:
    yield f"{point.pair['right']} {len(sound.samples)} {data} {file.data} {style} {words} {times}"

@model
def size(image: Image) -> List[int]:
    assert image.data[1:4] == b"PNG"
    return [*image.data[16:24]]

@model
def nothing(text: str = "none") -> str:
    return text
"""


def test_the_requests_that_run_prints_can_be_typed(tmp_path: Path) -> None:
    find_tool("curl")
    (tmp_path / "every.py").write_text(EVERY_KIND)
    with run(tmp_path, "every.py") as running:
        eventually(lambda: "nothing is served" in running.text, 60, "all functions")
        lines = re.findall(r"^  (curl .*)$", running.text, re.MULTILINE)
        answers = [subprocess.run(line, shell=True, stdout=-1).stdout.decode() for line in lines]

    assert [
        '{"output":"hello [1] (1, 2, 1)"}',
        """data: {"output":"hello 1 b'hello' b'hello' it's [b'hello'] 3"}""",
        '{"output":[0,0,0,1,0,0,0,1]}',
        '{"output":"none"}',
    ] == [each.rstrip("\n") for each in answers]
    assert "/v2/models" not in running.text


MAYBE = """
from typing import Iterator, Optional
from zmqtriton import Array, model

@model
def maybe(text: Optional[str] = None) -> Optional[str]:
    return text

@model
def again(text: Optional[str] = None) -> Iterator[Optional[str]]:
    yield text
    yield "a"

@model(batch=4)
def plus(number: Array["INT8", -1], word: Array["BYTES", -1]) -> Array["BYTES", -1]:
    return [b"%d%s" % row for row in zip(number, word)]
"""


def test_a_program_gets_none_and_elements_of_arrays(tmp_path: Path) -> None:
    server = Server(tmp_path / "server", frontends=())
    for name in ("maybe", "again", "plus"):
        server.write_model(name, "", MAYBE)
    with server, zmqtriton.connect(str(server.http_port)) as connection:
        assert (None, "b") == (connection.maybe(), connection.maybe("b"))
        assert [None, "a"] == [*connection.again()]
        assert b"7a\0" == connection.plus(7, b"a\0")
        document = {"number": 7, "word": "a\0"}
        assert (200, {"output": "7a\0"}) == server.request_json("/plus", document)


def _post(url: str, document: Any) -> Any:
    return urllib.request.Request(url, json.dumps(document).encode())


def test_where_no_function_is_nothing_asks_for_a_key(tmp_path: Path) -> None:
    options = ("--http-restricted-api=inference:key=secret",)
    server = Server(tmp_path / "server", ["add_sub"], options=options, frontends=())
    server.write_model("size", "", TALK)
    with server:

        def ask(path: str, headers: dict[str, str] | None = None, method: str = "POST") -> int:
            return ask_by(server, method, path, headers or {})

        assert (403, 200) == (ask("/size"), ask("/size", {"key": "secret"}))
        for path in ("/nothing", "/add_sub", "/size/more", "/v2/nothing"):
            assert 404 == ask(path), path
        assert (404, 403) == (ask("/nothing", method="GET"), ask("/size", method="GET"))
        foreign = {"Content-Type": "text/plain", "Origin": "http://elsewhere", "key": "secret"}
        assert (403, 404) == (ask("/size", foreign), ask("/nothing", foreign))


class Files(BaseHTTPRequestHandler):
    """A host of files; others are behind its redirects."""

    def do_GET(self) -> None:
        target = {"/away": "http://localhost:1/x", "/again": "/cat.jpg"}.get(self.path)
        self.send_response(302 if target else 200)
        if target:
            self.send_header("Location", target)
        self.end_headers()
        if not target:
            self.wfile.write(b"x" * (300_000 if self.path == "/large" else 7))

    def log_message(self, *words: object) -> None:
        """Log nothing."""


@pytest.fixture
def files() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as host:
        thread = threading.Thread(target=host.serve_forever)
        thread.start()
        yield f"127.0.0.1:{host.server_port}"
        host.shutdown()
        thread.join()


def test_urls_of_hosts_that_are_allowed_are_read_and_no_others(tmp_path: Path, files: str) -> None:
    options = (f"--functions-url-host=http://{files}", "--http-max-input-size=200000")
    server = Server(tmp_path / "server", options=options, frontends=())
    server.write_model("size", "", TALK)
    port = files.rpartition(":")[2]
    with server:

        def ask(url: str) -> tuple[int, Any]:
            status, document = server.request_json("/size", {"image": url})
            return status, document.get("output", document.get("error"))

        assert (200, 7) == ask(f"http://{files}/cat.jpg")
        assert (200, 7) == ask(f"http://{files}/again")
        form = urlencode({"image": f"http://{files}/cat.jpg"}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert {"output": 7} == json.loads(server.exchange("/size", form, kind).body)
        # a large form is read again when the URL has been read
        field = f'form-data; name="image"\r\n\r\nhttp://{files}/cat.jpg\r\n--x'
        file = f'form-data; name="file"; filename="a"\r\n\r\n{"y" * 100_000}\r\n--x--'
        head = "\r\nContent-Disposition: "
        form = f"--x{head}{field}{head}{file}\r\n".encode()
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        assert {"output": 100_007} == json.loads(server.exchange("/size", form, kind).body)
        for url in (
            f"http://{files}/away",
            f"http://localhost:{port}/cat.jpg",
            f"http://{files}@localhost:{port}/",
            f"http://user@{files}/cat.jpg",
            f"http://{files}.example/cat.jpg",
            f"https://{files}/cat.jpg",
        ):
            status, text = ask(url)
            assert 422 == status, url
            assert "image: the server reads no URLs of" in text, url
        assert (422, "image: the URL must not take more than 200000 bytes or 10 s") == ask(
            f"http://{files}/large"
        )
        assert 422 == ask("file:///etc/passwd")[0]


def test_without_hosts_no_url_is_read(server: Server, files: str) -> None:
    status, document = server.request_json("/size", {"image": f"http://{files}/cat.jpg"})
    text = "image: the server reads no URLs: start it with --functions-url-host"
    assert (422, text) == (status, document["error"])


def test_a_large_file_comes_whole_and_lies_on_disk(server: Server) -> None:
    data = random.Random(1).randbytes(9 << 20)
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    tail = b'\r\n--x\r\nContent-Disposition: form-data; name="salt"\r\n\r\n%s\r\n--x--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for salt in (b"a", b"b"):
        answer = server.exchange("/digest", head + data + tail % salt, kind)
        expected = hashlib.sha256(data + salt).hexdigest()
        assert {"output": f"{len(data)} {expected}"} == json.loads(answer.body)


SUM = """
import hashlib
from zmqtriton import File, model

@model
def sums(file: File) -> str:
    whole = hashlib.sha256()
    with open(file.path, "rb") as data:
        while piece := data.read(1 << 20):
            whole.update(piece)
    return whole.hexdigest()
"""


@pytest.mark.long("extras/functions/system/test_served.py::test_a_large_file_lies_once_in_memory")
@pytest.mark.parametrize("size", [200 << 20])
def test_a_very_large_file_lies_once_in_memory(tmp_path: Path, size: int) -> None:
    check_memory(tmp_path, size)


def test_a_large_file_lies_once_in_memory(tmp_path: Path) -> None:
    check_memory(tmp_path, 48 << 20)


def check_memory(directory: Path, size: int) -> None:
    """Check that no process has ever had a file of a form twice."""
    curl = find_tool("curl")
    file = directory / "large"
    whole = hashlib.sha256()
    with file.open("wb") as out:
        for number in range(size >> 20):
            piece = random.Random(number).randbytes(1 << 20)
            whole.update(piece)
            out.write(piece)
    options = (f"--http-max-input-size={size + (1 << 20)}",)
    server = Server(directory / "server", options=options, frontends=())
    server.write_model("sums", "", SUM)
    with server:
        processes = psutil.Process(server.pid).children(recursive=True)
        before = {each.pid: peak(each.pid) for each in processes}
        command = [curl, "-sS", f"{server.url}/sums", "-F", f"file=@{file}"]
        answer = subprocess.run(command, capture_output=True, check=True).stdout
        grown = {each.pid: peak(each.pid) - before[each.pid] for each in processes}

    assert {"output": whole.hexdigest()} == json.loads(answer)
    assert max(grown.values()) < 1.5 * size, grown
    file.unlink()


def peak(pid: int) -> int:
    """The most memory in bytes that a process has had, with what it shares."""
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return 1024 * int(kilobytes)


def test_a_function_of_texts_serves_openai(server: Server) -> None:
    chat = {"model": "talk", "messages": [{"role": "user", "content": "a"}], "stream": False}
    status, document = server.request_json("/v1/chat/completions", chat)
    text = document["choices"][0]["message"]["content"]
    assert (200, 2) == (status, text.count("user: a"))  # the chat as text, as for other models
    answer = server.exchange("/v1/completions", b'{"model": "talk", "prompt": "b", "stream": true}')
    texts = re.findall(rb'"text":"([^"]*)"', answer.body)
    assert b"b0b1" == b"".join(texts)
    assert b"data: [DONE]" in answer.body


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
            Grant(name, token_file.Grant.digest_of(secret), scopes, (name,)).line() + "\n"
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
        assert (404, 401) == (ask("/nothing", "size"), ask("/nothing"))  # as routes answer
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


def test_an_instance_starts_again_without_the_file_of_an_example(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", frontends=())
    source = """
from pathlib import Path
from zmqtriton import model

@model(examples=[{"text": Path(__file__).parent / "letter.txt"}])
def echo(text: str) -> str:
    return text
"""
    letter = server.write_model("echo", "", source) / "1" / "letter.txt"
    letter.write_text("hello")
    with server:
        letter.unlink()
        [pid] = server.stub_pids("echo")
        psutil.Process(pid).kill()

        assert eventually(lambda: pid not in server.stub_pids("echo"), 60)
        assert (200, {"output": "a"}) == server.request_json("/echo", {"text": "a"})
        status, document = server.request_json("/echo")

    assert 200 == status
    body = document["requestBody"]["content"]["application/json"]
    assert {"echo": {"value": {"text": "hello"}}} == body["examples"]
