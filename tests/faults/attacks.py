"""`make attacks SEED=1 MINUTES=20`: hostile clients beside fifty honest ones.

Every few seconds another attack begins, in an order that the seed decides, and some overlap. Honest
requests must all be answered right, nearly all of them within a second, by the same
processes, and the memory must come back.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from tests.faults.mixed_clients import Client, GrpcClient, HttpClient, StreamClient
from tests.support import leaks
from tests.support import raw_http2 as h2
from tests.support.raw_http import raw_request
from tests.support.server import Server

MIB = 1 << 20
LIMIT = 256 * MIB
INFER = "/v2/models/identity_fp32/infer"
GRPC_INFER = "/inference.GRPCInferenceService/ModelInfer"
HONEST: tuple[tuple[type[Client], int], ...] = (
    *((HttpClient, 20), (GrpcClient, 20), (StreamClient, 10)),
)
#: Between two requests of an honest client.
_PAUSE_S = 0.25
_P99_MS = 1000
#: How long one attack lasts, at most.
_ATTACK_S = 8.0
_HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n".encode()


class Attacks:
    """Each holds what it has opened until the time is up."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._grpc_port = int(server.grpc_address.rpartition(":")[2])
        stream = zlib.compressobj(9, zlib.DEFLATED, 31)
        self._bomb = stream.compress(b"[" + b"0," * (15 * MIB) + b"0]") + stream.flush()
        self.kinds: dict[str, Callable[[ExitStack, float], None]] = {
            "pipelining": self._pipeline,
            "bodies that never end": self._endless_bodies,
            "messages that never end": self._endless_messages,
            "connections that say nothing": self._silence,
            "headers byte by byte": self._trickle,
            "bodies that inflate": self._inflate,
            "documents with NaN": self._not_numbers,
            "large answers, not read": self._unread,
            "strange bytes": self._garbage,
            "floods of frames": self._frames,
        }

    def run(self, name: str) -> None:
        with ExitStack() as stack, suppress(OSError):
            self.kinds[name](stack, time.monotonic() + _ATTACK_S)

    def _connect(self, stack: ExitStack, port: int, data: bytes = b"") -> socket.socket:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
        connection.settimeout(0.2)
        with suppress(OSError):
            connection.sendall(data)
        return connection

    def _many(self, stack: ExitStack, count: int, data: bytes = b"") -> list[socket.socket]:
        return [self._connect(stack, self._server.http_port, data) for _ in range(count)]

    def _pipeline(self, stack: ExitStack, end: float) -> None:
        many = raw_request("GET", "/v2/models/identity_fp32/config") * 500
        connections = self._many(stack, 60)
        while time.monotonic() < end:
            for connection in connections:
                with suppress(OSError):
                    connection.send(many)

    def _endless_bodies(self, stack: ExitStack, end: float) -> None:
        for connection in self._many(stack, 20, _HEAD + b"Content-Length: 1000000000\r\n\r\n"):
            with suppress(OSError):
                connection.sendall(bytes(8 * MIB))
        time.sleep(max(0.0, end - time.monotonic()))

    def _endless_messages(self, stack: ExitStack, end: float) -> None:
        first = b"\1" + (1 << 30).to_bytes(4, "big") + bytes(15_000)
        for _ in range(4):
            client = stack.enter_context(h2.Connection(self._grpc_port))
            for number in range(1, 41, 2):
                client.send(h2.headers_frame(number, GRPC_INFER), h2.frame(0, 0, number, first))
            more = [h2.frame(0, 0, number, bytes(15_000)) for number in range(1, 41, 2)]
            for _ in range(20):
                if not client.send_within(1.0, *more):
                    break
        time.sleep(max(0.0, end - time.monotonic()))

    def _silence(self, stack: ExitStack, end: float) -> None:
        self._many(stack, 150)
        for _ in range(150):
            self._connect(stack, self._grpc_port, h2.PREFACE + h2.settings_frame({}))
        time.sleep(max(0.0, end - time.monotonic()))

    def _trickle(self, stack: ExitStack, end: float) -> None:
        connections = self._many(stack, 100, b"GET /v2 HTTP/1.1\r\nX: ")
        while time.monotonic() < end:
            for connection in connections:
                with suppress(OSError):
                    connection.send(b"a")
            time.sleep(0.3)

    def _inflate(self, stack: ExitStack, end: float) -> None:
        self._many(stack, 4, raw_request("POST", INFER, self._bomb, Content_Encoding="gzip"))
        time.sleep(max(0.0, end - time.monotonic()))

    def _not_numbers(self, stack: ExitStack, end: float) -> None:
        body = b'{"inputs":[' + b"0.1," * (2 * MIB) + b"NaN]}"
        data = raw_request("POST", INFER, body)
        for connection in self._many(stack, 2):
            connection.settimeout(10)
            with suppress(OSError):
                connection.sendall(data)
        time.sleep(max(0.0, end - time.monotonic()))

    def _unread(self, stack: ExitStack, end: float) -> None:
        size = 16 * MIB
        text = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"parameters":' % (
            size // 4
        )
        text += b'{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}' % size
        headers = {"Inference_Header_Content_Length": str(len(text))}
        data = raw_request("POST", INFER, text + bytes(size), **headers)
        for _ in range(6):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(5)
            connection.connect(("127.0.0.1", self._server.http_port))
            with suppress(OSError):
                connection.sendall(data)
        time.sleep(max(0.0, end - time.monotonic()))

    def _garbage(self, stack: ExitStack, end: float) -> None:
        whole = raw_request("POST", INFER, b"{}", Accept="x") * 3
        while time.monotonic() < end:
            with ExitStack() as few:
                for port in (self._server.http_port, self._grpc_port):
                    damaged = bytearray(whole if port == self._server.http_port else h2.PREFACE * 9)
                    for _ in range(self._chance.randint(1, 9)):
                        damaged[self._chance.randrange(len(damaged))] = self._chance.randrange(256)
                    self._connect(few, port, bytes(damaged))
                time.sleep(0.01)

    def _frames(self, stack: ExitStack, end: float) -> None:
        ping = h2.frame(h2.PING, 0, 0, bytes(8))
        resets = b"".join(
            h2.headers_frame(number, GRPC_INFER) + h2.reset_frame(number)
            for number in range(1, 401, 2)
        )
        while time.monotonic() < end:
            with h2.Connection(self._grpc_port) as client:
                client.send_within(1.0, self._chance.choice((ping * 5000, resets)))
            time.sleep(0.05)


class Honest:
    """One honest client in a thread, and how long it had to wait."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.waits: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(_PAUSE_S):
            begun = time.monotonic()
            try:
                outcome = self.client.ask()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is not right
                outcome = f"{type(error).__name__}: {error}"
                self.client.close()
            self.waits.append(time.monotonic() - begun)
            self.outcomes[outcome] += 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.client.prefix} has no answer"
        self.client.close()


def _mib_by_role(server: Server) -> dict[str, int]:
    return {
        role: sum(psutil.Process(pid).memory_full_info().pss for pid in pids) // MIB
        for role, pids in server.pids().items()
    }


def _mib(server: Server) -> int:
    return sum(_mib_by_role(server).values())


def run(seed: int, minutes: float, directory: Path) -> int:
    """Attack; return how many promises were broken."""
    chance = random.Random(seed)
    options = [f"--client-memory-byte-size={LIMIT}"]
    models = ("journal", "tokens", "identity_fp32")
    with Server(directory / "s", models=models, options=options) as server:
        pids, attacks = server.pids(), Attacks(server, chance)
        honest = [Honest(kind(server, n)) for kind, count in HONEST for n in range(count)]
        time.sleep(5)  # what honest clients take is not the attacks'
        print(f"MiB before: {_mib_by_role(server)}", flush=True)
        before = _mib(server)
        tried: Counter[str] = Counter()
        running: list[threading.Thread] = []
        peak, deadline = before, time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            name = chance.choice(sorted(attacks.kinds))
            tried[name] += 1
            running.append(threading.Thread(target=attacks.run, args=(name,), daemon=True))
            running[-1].start()
            time.sleep(chance.uniform(2.0, 6.0))
            peak = max(peak, _mib(server))
            running = [thread for thread in running if thread.is_alive()]
        for thread in running:
            thread.join(60)
        time.sleep(40)  # by then whoever stalls was closed
        after = _mib(server)
        print(f"MiB after:  {_mib_by_role(server)}", flush=True)
        for client in honest:
            client.stop()
        is_same = pids == server.pids()
        assert 0 == server.stop(60), "it ends in order"
    print(f"attacks: {dict(tried.most_common())}")
    return _judge(honest, (before, peak, after), is_same=is_same)


def _judge(honest: Sequence[Honest], mib: tuple[int, int, int], *, is_same: bool) -> int:
    broken = 0
    for kind, _ in HONEST:
        own = [one for one in honest if type(one.client) is kind]
        waits = sorted(wait * 1000 for one in own for wait in one.waits)
        outcomes = sum((one.outcomes for one in own), Counter[str]())
        median, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
        print(f"{kind.__name__:14} {len(waits):7} requests: {dict(outcomes.most_common(4))}")
        print(f"{'':14} median {median:.0f} ms, p99 {p99:.0f}, max {waits[-1]:.0f}")
        broken += sum(outcomes.values()) - outcomes["right"] + (p99 > _P99_MS)
    print(f"memory: {mib[0]} MiB before, {mib[1]} at most, {mib[2]} after; limit {LIMIT // MIB}")
    print(f"the same processes: {is_same}", flush=True)
    return broken + (not is_same) + (mib[2] > mib[0] + 128)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    arguments = parser.parse_args()
    mark = leaks.mark_session()
    before = leaks.take_snapshot(mark)
    with tempfile.TemporaryDirectory() as directory:
        broken = run(arguments.seed, arguments.minutes, Path(directory))
    left = leaks.find_leaks(before, mark)
    print("left behind:", left or "nothing")
    return 1 if left or broken else 0


if __name__ == "__main__":
    sys.exit(main())
