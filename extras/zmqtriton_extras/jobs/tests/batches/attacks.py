"""Attacks on files and batches, with figures; run as a module, with [NAME]...

Beside each attack an honest client sends a small file, and asks a model. Prints what became of the
attack, how much memory the processes of HTTP and of jobs took at most, what lies on disk, and how
long the honest client waited. Exits with 1 if a bound was broken.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.standard.attack_watch import MIB, AttackWatch
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import Reply, ask
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, line, text_of

#: What one attack may make a process take more than it had.
_MAX_MORE_MIB = 160
_MAX_DISK_BYTES = 1536 * MIB
#: The answers of lines that are jobs already, and were admitted by the size of their requests.
_MAX_OVER_BYTES = 512 * MIB
_PATIENCE_S = 300.0
_TYPE = "multipart/form-data; boundary=b"
_HEAD = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
)
_END = b"\r\n--b--\r\n"


def _head(size: int | None) -> bytes:
    length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
    return (
        f"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {_TYPE}\r\n{length}\r\n"
        "Connection: close\r\n\r\n"
    ).encode()


def send(server: Server, pieces: Iterable[bytes], size: int | None = None) -> tuple[int, Any]:
    """Send a body, in chunks if its length is not said; return the status and the document."""
    with socket.create_connection(("127.0.0.1", server.http_port), _PATIENCE_S) as connection:
        connection.sendall(_head(size))
        for piece in pieces:
            frame = b"%x\r\n%b\r\n" % (len(piece), piece) if size is None else piece
            connection.sendall(frame)
        if size is None:
            connection.sendall(b"0\r\n\r\n")
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def upload(server: Server, rows: Iterable[bytes]) -> str:
    """Send a file of these pieces; return its id."""

    def pieces() -> Iterator[bytes]:
        yield _HEAD
        yield from rows
        yield _END

    status, document = send(server, pieces())
    assert status == 200, document
    return str(document["id"])


def post(server: Server, path: str, document: Any = None) -> Reply:
    body = b"" if document is None else json.dumps(document).encode()
    return ask(server, path, body, {"Content-Type": "application/json"})


def begin(server: Server, file: str, window: str = "24h") -> str:
    fields = {"input_file_id": file, "endpoint": CHAT, "completion_window": window}
    return str(post(server, "/v1/batches", fields).document["id"])


def batch_of(server: Server, batch: str) -> Any:
    return ask(server, f"/v1/batches/{batch}").document


def reached(server: Server, batch: str, *states: str) -> Any:
    eventually(lambda: batch_of(server, batch)["status"] in states, _PATIENCE_S)
    return batch_of(server, batch)


def many_lines(count: int, own_id: Callable[[int], str] = str) -> Iterator[bytes]:
    for first in range(0, count, 5000):
        yield text_of(*(line(own_id(n)) for n in range(first, min(first + 5000, count))))


# ------------------------------------------------------------------ the attacks


def giant_form(server: Server) -> str:
    """700 MiB in chunks."""
    status, document = send(server, (bytes(MIB) for _ in range(700)))
    assert status == 413
    return str(document["error"]["message"])


def many_parts(server: Server) -> str:
    """64 MiB of boundaries, and of what looks like one."""
    begun = time.monotonic()
    field = b'\r\n--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
    for text in (field, b"\r\n--bc"):
        piece = text * (MIB // len(text))
        status, _ = send(server, [_HEAD, *[piece] * 64, _END])
        assert status == 413
    return f"413 twice, after {time.monotonic() - begun:.1f} s"


def million_lines(server: Server) -> str:
    """A million lines: kept, checked, begun and cancelled."""
    begun = time.monotonic()
    file = upload(server, many_lines(1_000_000))
    size = ask(server, f"/v1/files/{file}").document["bytes"]
    sent = time.monotonic()
    batch = begin(server, file)
    reached(server, batch, "in_progress")
    checked = time.monotonic()
    eventually(lambda: batch_of(server, batch)["request_counts"]["completed"] > 1000, _PATIENCE_S)
    executed = time.monotonic()
    post(server, f"/v1/batches/{batch}/cancel")
    numbers = reached(server, batch, "cancelled")["request_counts"]
    assert 1_000_000 == numbers["total"] == numbers["completed"] + numbers["failed"]
    return (
        f"{size / MIB:.0f} MiB sent in {sent - begun:.0f} s, checked in {checked - sent:.0f} s, "
        f"1000 lines executed in {executed - checked:.1f} s, the rest cancelled in "
        f"{time.monotonic() - executed:.0f} s"
    )


def one_line_more(server: Server) -> str:
    """A million lines and one, and a million lines with one id."""
    codes = []
    for rows in (many_lines(1_000_001), many_lines(300_000, lambda _: "same")):
        document = reached(server, begin(server, upload(server, rows)), "failed")
        errors = document["errors"]["data"]
        codes.append(f"{errors[-1]['code']} ({len(errors)})")
    return ", ".join(codes)


def expansions(server: Server) -> str:
    """Content-Encoding, a compressed file, lists in lists, a line of 70 MiB."""
    status = ask(
        server, "/v1/files", b"\x1f\x8b", {"Content-Type": _TYPE, "Content-Encoding": "gzip"}
    ).status
    assert status == 415
    codes = []
    for rows in (
        [b"\x1f\x8b" + bytes(MIB)],
        [b"[" * MIB] * 8,
        [b'{"a":"', *[b"x" * MIB] * 70, b'"}'],
        [b'{"a":[', *[b"[]," * (MIB // 3)] * 20, b"[]]}"],
    ):
        document = reached(server, begin(server, upload(server, rows)), "failed")
        codes.append(document["errors"]["data"][0]["code"])
    return f"415, {', '.join(codes)}"


def long_answers(server: Server) -> str:
    """Lines whose answers are a hundred times as long, while there is room for them."""
    text = "word " * 2000
    body = {"model": "parrot", "n": 128, "messages": [{"role": "user", "content": text}]}
    rows = (text_of(line(str(n), more={"body": body})) for n in range(4000))
    batch = begin(server, upload(server, rows), "40s")
    numbers = reached(server, batch, "expired", "completed")["request_counts"]
    return f"{numbers}"


def slow_uploads(server: Server) -> str:
    """200 files of which a byte comes now and then."""
    connections = []
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", server.http_port), 10)
        connection.sendall(_head(10**6) + _HEAD)
        connections.append(connection)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        for connection in connections:
            connection.send(b"x")
        time.sleep(0.2)
    for connection in connections:
        connection.close()
    files = _files(server)
    eventually(lambda: not any(file.stat().st_size < 5000 for file in files.iterdir()), 60)
    return "kept nowhere after they left"


def too_much(server: Server) -> str:
    """30 files of 100 MiB at once."""
    size = len(_HEAD) + 100 * MIB + len(_END)

    def one(_: int) -> int:
        return send(server, [_HEAD, *[bytes(MIB)] * 100, _END], size)[0]

    with ThreadPoolExecutor(30) as clients:
        return f"{dict(Counter(clients.map(one, range(30))))}"


ATTACKS = {
    function.__name__: function
    for function in (
        giant_form,
        many_parts,
        million_lines,
        one_line_more,
        expansions,
        long_answers,
        slow_uploads,
        too_much,
    )
}


# -------------------------------------------------------------------- measuring


def _files(server: Server) -> Path:
    return server.directory / "state" / "zmqtriton" / "jobs" / "files"


def watch(server: Server) -> AttackWatch:
    body = _HEAD + text_of(line("honest")) + _END

    def ask_honestly() -> int:
        status, document = send(server, [body], len(body))
        if status != 200:
            return status
        ask(server, f"/v1/files/{document['id']}", method="DELETE")
        return post(server, CHAT, line("a")["body"]).status

    return AttackWatch(
        server, "jobs", _files(server).parent, ask_honestly, look_every_s=0.05, ask_every_s=0.2
    )


def main() -> int:
    names = sys.argv[1:] or list(ATTACKS)
    is_broken = False
    for name in names:
        with tempfile.TemporaryDirectory(prefix="attacks-") as place:
            options = ["--jobs", "--allow-openai", f"--jobs-max-bytes={_MAX_DISK_BYTES}"]
            server = Server(Path(place), ["parrot"], options=options, frontends=())
            with server:
                post(server, CHAT, line("a")["body"])
                with watch(server) as watched:
                    text = ATTACKS[name](server)
        more = watched.more_mib
        waited = sorted(watched.waited_ms)
        is_broken |= max(more.values(), default=0) > _MAX_MORE_MIB
        is_broken |= watched.disk_bytes > _MAX_DISK_BYTES + _MAX_OVER_BYTES
        sys.stdout.write(
            f"{name}: {text}\n    memory {dict(watched.before)} and at most {dict(more)} MiB more, "
            f"disk {watched.disk_bytes / MIB:.0f} MiB; honest: {len(waited)} times, median "
            f"{statistics.median(waited):.0f} ms, at most {waited[-1]:.0f} ms, failed "
            f"{dict(watched.failed) or 0}\n"
        )
        sys.stdout.flush()
    return 1 if is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
