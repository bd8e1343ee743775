"""One door for what a client sends: limits, refusals without values, files without names."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.attacks import hostile as documents
from tests.faults.attacks.hostile import JSON, many
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from zmqtriton_extras.functions.tests import hostile
from zmqtriton_extras.functions.tests.hostile import FORM, form

pytestmark = pytest.mark.system

CANARY = "sesame-opens-it"
SECRET = b"the data of a client"
SOURCE = f"""{hostile.SOURCE}
@model(json_bytes=100_000)
def table(x: dict[str, int]) -> dict:
    return x

@model
def keep(file: File) -> str:
    path = file.path
    with open(path, "rb") as data:
        assert data.read()
    while os.path.exists(os.environ["HELD"]):
        time.sleep(0.01)
    return path
"""
NAMES = ("plain", "shout", "row", "table", "keep")


class Hosts:
    """A host that answers no request, or with a line of its head each tenth of a second."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.taken: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.taken.append(connection)
            if b"/drip" in connection.recv(4096):
                threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                connection.sendall(b"x: y\r\n")
                time.sleep(0.1)
        except OSError:
            return

    def close(self) -> None:
        # wakes accept()
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self.taken):
            each.close()


def send(server: Server, address: str, path: str, body: bytes, headers: Mapping[str, str]) -> int:
    return documents.send(server.http_port, path, body, headers, address).status


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hosts: Hosts) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("doors")
    (directory / "tmp").mkdir()
    server = Server(
        directory,
        ["identity_fp32"],
        options=(f"--access-log={directory}/access", f"--functions-url-host={hosts.origin}"),
        environment={"TMPDIR": str(directory / "tmp"), "HELD": str(directory / "held")},
        frontends=(),
    )
    for name in NAMES:
        server.write_model(name, "", SOURCE)
    with server:
        yield server


def test_the_access_log_has_nothing_that_a_client_has_sent(server: Server) -> None:
    value = {"x": {"a": [CANARY]}}
    documents: dict[str, Any] = {
        "/shout": [
            {"text": "a", "times": CANARY},
            {"text": {CANARY: 1}},
            {"text": ["", CANARY]},
            {CANARY: 1, "text": "a"},
            {"a" * 90 + CANARY: 1, "text": "a"},
        ],
        "/row": [value, {"x": {CANARY: 1}}, {"x": CANARY}, {"x": [CANARY]}],
        "/table": [{"x": {"a": CANARY}}, {"x": {CANARY: "b"}}, {"x": {"b" * 90 + CANARY: "b"}}],
        "/keep": [{"file": CANARY}, {"file": f"http://{CANARY}/"}],
        "/v2/models/shout/infer": [
            {"inputs": [tensor(CANARY, "BYTES", ["a"])]},
            {"inputs": [tensor("text", CANARY, ["a"])]},
            {"inputs": [tensor(f"it's {CANARY}", "BYTES", ["a"])], "outputs": [{"name": CANARY}]},
            {"inputs": [tensor("text", "BYTES", ["a"]), tensor("times", "INT64", [CANARY])]},
            {"inputs": [], "parameters": {CANARY: [1]}},
        ],
        "/v2/models/shout/generate": [{CANARY: [1]}, {"text": "a", "times": CANARY}],
        "/v2/models/row/infer": [
            {"inputs": [tensor("x", "BYTES", [json.dumps(each)])]}
            for each in ({"a": [CANARY]}, {CANARY: 1}, CANARY)
        ],
    }
    for path, rows in documents.items():
        for row in rows:
            status, answer = server.request_json(path, row)

            assert 400 <= status < 500, (path, row, answer)
            assert len(json.dumps(answer)) <= 4096 + 4096 * ("detail" in answer)
            if "a" * 78 in json.dumps(row) or "b" * 78 in json.dumps(row):
                assert CANARY not in json.dumps(answer), (path, row)

    access = server.directory / "access"
    assert eventually(lambda: access.exists() and access.read_text().count('"error"') >= 10, 30)
    assert CANARY not in access.read_text()


def test_an_error_is_short_however_long_the_client_s_text_is(server: Server) -> None:
    bodies: dict[str, list[Any]] = {
        "/shout": [
            {"n" * 2_000_000: 1},
            {"text": ["x"] * 500_000},
            {"text": "a", "times": "y" * 10**6},
        ],
        "/row": [{"x": {"a": "z" * 10**6}}, {"x": {"k" * 10**6: 1}}, {"x": ["z"] * 10**5}],
        "/v2/models/shout/infer": [{"inputs": [tensor("n" * 1000, "BYTES", ["a"])]}],
    }
    for path, rows in bodies.items():
        for row in rows:
            status, answer = server.request_json(path, row)

            assert 400 <= status < 500, answer
            assert len(answer["error"].encode()) <= 4096


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/shout", form("times", many(b"[]", 16)), FORM),
        (
            "/shout",
            gzip.compress(form("times", many(b"[]", 16)), 1),
            {**FORM, "content-encoding": "gzip"},
        ),
        ("/shout", b'{"text":%b}' % many(b"[]", 16), JSON),
        ("/row", b'{"x":{"a":%b}}' % many(b"0.5", 16), JSON),
        ("/table", b'{"x":{"a":%b}}' % many(b"1", 0.2), JSON),
        ("/v2/models/shout/generate", b'{"text":%b}' % many(b"[]", 16), JSON),
    ],
    ids=["form", "gzip", "JSON", "floats", "json_bytes", "generate"],
)
def test_a_document_beyond_a_limit_is_refused_while_others_are_answered(
    server: Server, path: str, body: bytes, headers: dict[str, str]
) -> None:
    statuses: list[int] = []
    attack = threading.Thread(
        target=lambda: statuses.append(send(server, "127.0.0.3", path, body, headers))
    )
    attack.start()
    others = [send(server, "127.0.0.2", "/plain", b'{"x":1}', JSON)]
    while attack.is_alive():
        others.append(send(server, "127.0.0.2", "/plain", b'{"x":1}', JSON))
    attack.join()

    assert statuses[0] in (400, 422)
    assert {200} == {*others}


def test_a_limit_of_the_author_is_named(server: Server) -> None:
    status, answer = server.request_json("/table", {"x": {"a" * 100_000: 1}})

    assert 422 == status or 400 == status
    assert "request JSON has more than 100000 bytes" in answer["error"]


def test_a_large_document_within_the_limits_is_served(server: Server) -> None:
    values = [n / 7 for n in range(1_000_000)]
    entry = tensor("INPUT0", "FP32", values)

    status, answer = server.request_json("/v2/models/identity_fp32/infer", {"inputs": [entry]})

    assert 200 == status
    assert values == pytest.approx(answer["outputs"][0]["data"])


def _ended(server: Server, filename: bytes, kill: Callable[[], None]) -> None:
    held = server.directory / "held"
    held.touch()
    try:
        body = form("file", SECRET * 1000).replace(b'"file"', b'"file"; filename="%b"' % filename)
        asking = threading.Thread(target=send, args=(server, "127.0.0.2", "/keep", body, FORM))
        asking.start()
        assert eventually(lambda: _open_files(server.stub_pids("keep")) or _named_files(server), 30)
        kill()
        asking.join()
    finally:
        held.unlink()


def _open_files(pids: list[int]) -> list[str]:
    """Return the files of a model's processes in the directory for temporary files."""
    links = [os.readlink(link) for pid in pids for link in Path(f"/proc/{pid}/fd").glob("*")]
    return [each for each in links if "/tmp/" in each and "(deleted)" in each]


def _named_files(server: Server) -> list[Path]:
    """Return the files below the directory for temporary files that have a client's data."""
    found = []
    for each in [Path(at, name) for at, _, names in os.walk(server.directory) for name in names]:
        with suppress(FileNotFoundError):  # it may go meanwhile
            if each.is_file() and SECRET in each.read_bytes():
                found.append(each)
    return found


@pytest.mark.parametrize("filename", [b"a", b"a.csv"])
def test_a_file_leaves_nothing_when_its_process_is_killed(server: Server, filename: bytes) -> None:
    assert eventually(lambda: server.stub_pids("keep"), 30)
    [pid] = server.stub_pids("keep")
    seen: list[Path] = []

    def kill() -> None:
        seen.extend(_named_files(server))
        os.kill(pid, signal.SIGKILL)

    _ended(server, filename, kill)

    # a name with a suffix is that of the file
    assert [filename.decode()] * (b"." in filename) == [each.name for each in seen]
    assert eventually(lambda: not _named_files(server), 30)
    assert [] == [each for each in (server.directory / "tmp").iterdir() if each.is_file()]


@pytest.mark.parametrize("filename", [b"x", b"a.csv"])
def test_a_file_leaves_nothing_when_the_whole_server_is_killed(
    tmp_path: Path, filename: bytes
) -> None:
    places = [tmp_path / "server" / name for name in ("tmp", "run", "held")]
    places[0].mkdir(parents=True)
    environment = {"TMPDIR": str(places[0]), "HELD": str(places[2])}
    options = [f"--runtime-directory={places[1]}"]
    server = Server(tmp_path / "server", options=options, environment=environment, frontends=())
    server.write_model("keep", "", SOURCE)
    with server:
        pids = server.stub_pids("keep")
        _ended(server, filename, server.kill)

    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)
    assert eventually(lambda: not _named_files(server), 30)


def test_a_file_with_a_suffix_is_gone_after_its_call(server: Server) -> None:
    body = form("file", SECRET * 1000).replace(b'"file"', b'"file"; filename="a.csv"')

    assert eventually(lambda: 200 == send(server, "127.0.0.2", "/keep", body, FORM), 60)

    assert [] == _named_files(server)


def test_hanging_urls_keep_nobody_with_a_file_of_its_own(server: Server, hosts: Hosts) -> None:
    url = json.dumps({"file": f"{hosts.origin}/hang"}).encode()
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: statuses.append(send(server, "127.0.0.3", "/keep", url, JSON))
        )
        for _ in range(24)
    ]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(hosts.taken) >= 16 and 503 in statuses, 30)

    begun = time.monotonic()
    assert 200 == send(server, "127.0.0.2", "/keep", b'{"file":"AAAA"}', JSON)
    # the others still wait: their deadline is that of a fetch
    assert len(statuses) < 24 or time.monotonic() - begun > 5

    for each in hosts.taken:
        each.close()
    for thread in threads:
        thread.join()
    assert {422, 503} == {*statuses}


def test_a_host_that_drips_its_head_has_the_time_of_a_whole_file(
    server: Server, hosts: Hosts
) -> None:
    status, answer = server.request_json("/keep", {"file": f"{hosts.origin}/drip"})

    assert 422 == status
    assert answer["error"].startswith("file: the URL must not take more than ")


def test_a_message_of_a_web_socket_is_refused_as_a_request_is(server: Server) -> None:
    text = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":%b}]}' % many(
        b"[]", 8
    )
    with socket.create_connection(("127.0.0.1", server.http_port), 60) as connection:
        head = "GET /v2/models/identity_fp32/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        head += "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
        connection.sendall(f"{head}sec-websocket-key: {'A' * 22}==\r\n\r\n".encode())
        reader = connection.makefile("rb")
        while reader.readline().strip():
            pass
        connection.sendall(b"\x81\xff" + struct.pack(">Q", len(text)) + bytes(4) + text)
        opcode, length = reader.read(2)
        size = struct.unpack(">H", reader.read(2))[0] if length == 126 else length
        answer = json.loads(reader.read(size))

    assert 0x81 == opcode
    assert answer["error"].startswith("request JSON has more than 2097152 arrays and objects")
