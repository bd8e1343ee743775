"""Documents that cost their reader much: `python -m tests.faults.attacks.documents --seed 1`.

One attacker sends one document after the other, in each way that a server reads some: forms, JSON
of functions, `infer`, `generate`, WebSockets, and all other routes that /openapi.json names. Two
clients of another address ask meanwhile, each 20 ms: another model, and the attacked one. Printed
are the longest waits of both, and the longest time for which a process of the server has kept its
interpreter's lock, of frontends and of models' processes. Nothing is judged; on a busy machine
only the lock's column says something.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.server import Server
from tests.support.tools import parse_options, serving

MIB = 1 << 20
_ATTACKER, _BYSTANDER = "127.0.0.3", "127.0.0.2"
_PAUSE_S, _REST_S, _PATIENCE_S = 0.02, 0.5, 120.0
_BOUNDARY = "X"
_FUNCTIONS = """
from dataclasses import dataclass
import numpy as np
from zmqtriton import File, model

@dataclass
class Row:
    a: list[float]

@model
def plain(x: int) -> int:
    return x

@model
def shout(text: str, times: int = 1) -> str:
    return text[:9]

@model
def texts(x: list[str]) -> list[str]:
    return x

@model
def numbers(x: list[list[int]]) -> int:
    return len(x)

@model
def array(x: np.ndarray) -> int:
    return len(x)

@model
def box(x: dict) -> dict:
    return x

@model
def row(x: Row) -> int:
    return len(x.a)

@model
def keep(file: File) -> int:
    return len(file.data)
"""
_NAMES = ("plain", "shout", "texts", "numbers", "array", "box", "row", "keep")
_JSON = {"content-type": "application/json"}
_FORM = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}
#: Arguments of the bystander, by the model that is attacked too.
_CALLS: Mapping[str, Any] = {
    "shout": {"text": "a"},
    "texts": {"x": ["a"]},
    "numbers": {"x": [[1]]},
    "array": {"x": [1.0]},
    "box": {"x": {}},
    "row": {"x": {"a": [1.0]}},
    "keep": {"file": "AAAA"},
}


class Attack(NamedTuple):
    """One request."""

    name: str
    path: str
    body: bytes
    headers: Mapping[str, str] = _JSON
    #: The function that a second bystander calls.
    model: str = "shout"
    #: True for a message of a WebSocket at that path.
    is_message: bool = False


def many(element: bytes, mib: float) -> bytes:
    """Return an array of equal elements, of so many MiB of text."""
    count = int(mib * MIB) // (len(element) + 1)
    return b"[" + (element + b",") * (count - 1) + element + b"]"


def keys(count: int) -> bytes:
    return b"{" + b",".join(b'"%x":1' % number for number in range(count)) + b"}"


def form(name: str, text: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + text + f"\r\n--{_BOUNDARY}--\r\n".encode()


def member(name: str, text: bytes) -> bytes:
    return b'{"%b":%b}' % (name.encode(), text)


def infer(name: str, text: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a request whose one element is a text, as binary data."""
    element = struct.pack("<I", len(text)) + text
    size = {"binary_data_size": len(element)}
    entry = {"name": name, "datatype": "BYTES", "shape": [1], "parameters": size}
    head = json.dumps({"inputs": [entry]}).encode()
    return head + element, {"inference-header-content-length": str(len(head))}


def own_attacks() -> Iterator[Attack]:
    """Iterate over those to functions, and to a plain model."""
    lists, floats, texts = many(b"[]", 60), many(b"0.1234", 56), many(b'""', 21)
    yield Attack("form, [] for an int", "/shout", form("times", lists), _FORM)
    yield Attack("form, floats for an int", "/shout", form("times", many(b"1.5", 60)), _FORM)
    zipped = gzip.compress(form("times", lists), 1)
    yield Attack("form of [] as gzip", "/shout", zipped, {**_FORM, "content-encoding": "gzip"})
    yield Attack("form, keys", "/box", form("x", keys(4_500_000)), _FORM, "box")
    yield Attack("form, a text", "/shout", form("text", b"a, " * (20 * MIB)), _FORM)
    yield Attack("empty texts", "/texts", member("x", texts), model="texts")
    yield Attack("floats for a str", "/shout", member("text", floats))
    yield Attack("ints for a str", "/shout", member("text", many(b"1", 16)))
    yield Attack("floats in a dict", "/box", member("x", member("a", floats)), model="box")
    yield Attack("floats in a dataclass", "/row", member("x", member("a", floats)), model="row")
    yield Attack("keys of a dict", "/box", member("x", keys(1_000_000)), model="box")
    yield Attack("ints for an array", "/array", member("x", many(b"1", 16)), model="array")
    yield Attack("small lists", "/numbers", member("x", many(b"[1]", 0.99)), model="numbers")
    yield Attack("base64", "/keep", member("file", b'"' + b"A" * (60 * MIB) + b'"'), model="keep")
    yield Attack("escapes", "/shout", member("text", b'"' + b"\\u0041" * (10 * MIB) + b'"'))
    for name, text in (("[]", member("a", many(b"[]", 57))), ("floats", member("a", floats))):
        for model in ("box", "row"):
            body, headers = infer("x", text)
            path = f"/v2/models/{model}/infer"
            yield Attack(f"infer of {model}, {name}", path, body, headers, model)
    rows = {"[[1,2],…": b"[1,2]", "floats": b"0.1234", "objects": b'{"a":1}', "[]": b"[]"}
    for name, element in rows.items():
        text = many(element, 8)
        entry = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":%b}]}' % (
            text.count(b",") + 1,
            text,
        )
        flat = member("INPUT0", text)
        for verb, body in (("infer", entry), ("generate", flat)):
            yield Attack(f"{verb}, {name}", f"/v2/models/identity_fp32/{verb}", body)
        path = "/v2/models/identity_fp32/stream"
        yield Attack(f"WebSocket, {name}", path, entry, {}, is_message=True)


def found_attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    """Iterate over each other route for POST that the server itself describes."""
    paths: dict[str, Any] = server.request_json("/openapi.json")[1]["paths"]
    elements = [b"[]", b"{}", b"0.5", b'""', b'{"a":1}', b"[1,2]"]
    wrapped = {"messages": "parrot", "input": "parrot", "prompt": "parrot"}
    for path in sorted(path for path, verbs in paths.items() if "post" in verbs):
        if path.strip("/") in _NAMES:
            continue
        text = many(chance.choice(elements), chance.uniform(4, 20))
        members = [b'"model":"parrot"', *(b'"%b":%b' % (k.encode(), text) for k in wrapped)]
        body = b"{" + b",".join(members) + b"}"
        place = path.replace("{model}", "identity_fp32").replace("{version}", "1")
        yield Attack(f"POST {path}", place.replace("{", "").replace("}", ""), body)


class Waits:
    """A client that asks again and again; its longest wait between two looks."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.model = "plain"
        self.longest_s = 0.0
        self.wrong = 0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._has_ended.wait(_PAUSE_S):
            begun = time.monotonic()
            body = json.dumps(_CALLS.get(self.model, {"x": 1})).encode()
            status = send(self._server, _BYSTANDER, f"/{self.model}", body, _JSON)
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.wrong += status != 200

    def take_ms(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s * 1000

    def end(self) -> None:
        self._has_ended.set()
        self._thread.join()


def send(server: Server, address: str, path: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Return the status of a POST from an address; 0 if the connection has ended."""
    place = "127.0.0.1", server.http_port
    connection = http.client.HTTPConnection(*place, _PATIENCE_S, (address, 0))
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def send_message(server: Server, path: str, text: bytes) -> int:
    """Return 101 once a message over a WebSocket was answered."""
    place = "127.0.0.1", server.http_port
    with socket.create_connection(place, _PATIENCE_S, (_ATTACKER, 0)) as connection:
        head = (
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\n"
            "connection: upgrade\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        connection.sendall(head.encode())
        reader = connection.makefile("rb")
        while reader.readline().strip():
            pass
        connection.sendall(b"\x81\xff" + struct.pack(">Q", len(text)) + bytes(4) + text)
        return 101 if reader.read(2) else 0


class Locks:
    """Reports of the server's processes of their locks."""

    def __init__(self, server: Server, path: Path) -> None:
        self._server, self._path = server, path

    def longest_ms(self, begun: float) -> tuple[float, float]:
        """Return the longest time since then, in frontends over HTTP and in models' processes."""
        pids = self._server.pids()
        frontends = {str(pid) for role in pids if role == "http" for pid in pids[role]}
        own, models = 0.0, 0.0
        for line in self._path.read_text().splitlines():
            pid, at, late_s = line.split()
            if float(at) >= begun and pid in frontends:
                own = max(own, float(late_s))
            elif float(at) >= begun:
                models = max(models, float(late_s))
        return own * 1000, models * 1000


def measure(server: Server, attack: Attack, clients: list[Waits], locks: Locks) -> str:
    """Attack once; return the row."""
    clients[1].model = attack.model
    time.sleep(_REST_S)
    for client in clients:
        client.take_ms()
    begun = time.monotonic()
    if attack.is_message:
        status = send_message(server, attack.path, attack.body)
    else:
        status = send(server, _ATTACKER, attack.path, attack.body, attack.headers)
    took_s = time.monotonic() - begun
    time.sleep(_REST_S)
    waits = "".join(f"{client.take_ms():>10.0f}" for client in clients)
    held = "".join(f"{ms:>10.0f}" for ms in locks.longest_ms(begun))
    size = len(attack.body) / MIB
    return f"{attack.name:44}{size:>7.2f}{status:>5}{took_s:>8.2f}{waits}{held}"


def prepare(server: Server) -> None:
    for name in _NAMES:
        version = server.repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(_FUNCTIONS)


def main() -> None:
    arguments = parse_options(
        seed=(0, "of the choices; 0 draws one"),
        only=("", "attacks with this in their name"),
    )
    seed = arguments.seed or random.SystemRandom().randrange(1, 1 << 30)
    print(f"seed {seed}", flush=True)
    ticking = Path(__file__).with_name("ticking")
    path = Path(f"/tmp/ticks-{os.getpid()}")
    path.touch()
    environment = {"PYTHONPATH": str(ticking), "ZT_TICKS": str(path)}
    how: dict[str, Any] = {"environment": environment, "frontends": ()}
    options = ("--allow-openai", "--client-memory-byte-size=1073741824")
    models = ("identity_fp32", "parrot")
    chosen: Callable[[Attack], bool] = lambda attack: arguments.only in attack.name  # noqa: E731
    with serving(models, prepare, options=options, **how) as server:
        clients = [Waits(server), Waits(server)]
        locks = Locks(server, path)
        try:
            print(
                f"{'':44}{'MiB':>7}{'':5}{'s':>8}{'other ms':>10}{'same ms':>10}"
                f"{'lock ms':>10}{'model ms':>10}"
            )
            for attack in (*own_attacks(), *found_attacks(server, random.Random(seed))):
                if chosen(attack):
                    print(measure(server, attack, clients, locks), flush=True)
        finally:
            for client in clients:
                client.end()
            path.unlink()
        print(f"answers that were not 200: {sum(client.wrong for client in clients)}")


if __name__ == "__main__":
    main()
