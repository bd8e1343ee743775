"""Waits of others beside hundreds of streams that are not read, or are read slowly.

`python -m zmqtriton_extras.functions.tests.bench_unread` prints a row for each attack and each kind
of request over HTTP and gRPC, made by clients of the attackers' address and of another one: its
waits without and with the attack. The line of an attack has the longest turn of a loop of these
two, as the server reports it, the memory that each got, and how late a process was that needs
hardly any processor: a wait of that length is the machine's. Attackers and their model take what
others leave of the processors. Nothing is judged.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.faults.attacks.watching import Gauge, Machine, percentiles
from tests.faults.requests import INFER, SERVICE, STREAM, grpc_request, int32
from tests.support import raw_http2 as h2
from tests.support.raw_http import raw_request
from tests.support.server import Server, tensor
from tests.support.tools import parse_options, serving
from zmqtriton_extras.web_sockets.frames import TEXT
from zmqtriton_extras.web_sockets.tests.conversations import client_frame

#: The addresses of the attackers and of a client elsewhere.
OWN, OTHER = "127.0.0.1", "127.0.0.2"
PAUSE_S = 0.05
_PIECE_BYTES = 64
_NICENESS = 19

_UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
#: Sends a piece to each stream, one after the other, 500 times a second if it can.
TALK = """
import queue, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "size", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "output", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        self.arrivals = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def execute(self, requests):
        for request in requests:
            size = int(pb_utils.get_input_tensor_by_name(request, "size").as_numpy()[0])
            self.arrivals.put((request.get_response_sender(), b"x" * size))

    def run(self):
        streams = []
        while True:
            while not streams or not self.arrivals.empty():
                streams.append(self.arrivals.get())
            due = time.monotonic() + 0.002
            streams = [stream for stream in streams if self.send(*stream)]
            time.sleep(max(0.0, due - time.monotonic()))

    def send(self, sender, text):
        if sender.is_cancelled():
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return False
        output = pb_utils.Tensor("output", np.array([text], np.object_))
        try:
            sender.send(pb_utils.InferenceResponse([output]))
        except pb_utils.TritonModelException:  # the client was too slow
            return False
        return True
"""
#: Makes a step for all streams, 500 times a second if it can.
STEPS = """
import time
from typing import List
from zmqtriton import model

@model(streams=256)
class Steps:
    def admit(self, size: int) -> str:
        return "x" * size

    def step(self, states: list) -> List[str]:
        time.sleep(0.002)
        return list(states)
"""
PLAIN = """
from zmqtriton import model

@model
def plain(x: int) -> int:
    return x + 1
"""
_MODELS = {"talk": TALK, "steps": STEPS, "plain": PLAIN}
#: Requests of others: over HTTP whole ones, over gRPC a path and a message.
_HTTP = {
    "plain": raw_request("POST", "/plain", b'{"x": 1}', Content_Type="application/json"),
    "live": raw_request("GET", "/v2/health/live", b""),
    "ready": raw_request("GET", "/v2/health/ready", b""),
}
_GRPC = {
    "gRPC plain": (INFER, grpc_request("plain", x=("INT64", (1,), bytes(8))).SerializeToString()),
    "gRPC live": (SERVICE + "ServerLive", b""),
}
ASKS = [(name, place) for name in (*_HTTP, *_GRPC) for place in (OTHER, OWN)]
#: Attacks: the number of clients and the model whose streams they open.
ATTACKS = {
    "not read": (400, "talk"),
    "not read, steps": (400, "steps"),
    "read slowly": (200, "talk"),
    "read slowly, steps": (200, "steps"),
    "read": (200, "talk"),
    "WebSockets, not read": (60, "talk"),
    "gRPC, not read": (400, "talk"),
    "gRPC, not read, steps": (400, "steps"),
    "gRPC, idle": (60, "talk"),
}


def prepare(server: Server) -> None:
    for name, code in _MODELS.items():
        directory = server.repository / name / "1"
        directory.mkdir(parents=True)
        (directory / "model.py").write_text(code)


# ------------------------------------------------------------------- attackers


def _open(name: str, model: str, port: int, grpc_port: int) -> Any:
    if name.startswith("gRPC"):
        message = b""
        if name != "gRPC, idle":
            request = grpc_request(model, size=int32(_PIECE_BYTES))
            message = h2.data_frame(1, request.SerializeToString())
        first = h2.PREFACE + h2.settings_frame({}) + h2.headers_frame(1, STREAM) + message
        return h2.Connection(grpc_port, first, OWN)
    client = socket.socket()
    client.bind((OWN, 0))
    client.connect((OWN, port))
    if name.startswith("WebSockets"):
        path = f"/v2/models/{model}/stream"
        client.sendall(raw_request("GET", path, b"", **_UPGRADE))
        inputs = [tensor("size", "INT32", [_PIECE_BYTES])]
        client.sendall(client_frame(TEXT, json.dumps({"id": "a", "inputs": inputs}).encode()))
    else:
        body = json.dumps({"size": _PIECE_BYTES}).encode()
        path = f"/v2/models/{model}/generate_stream"
        client.sendall(raw_request("POST", path, body, Content_Type="application/json"))
    client.setblocking(False)
    return client


def _attack(name: str, port: int, grpc_port: int, seconds: float) -> None:
    """Open streams and hold them, as a process of its own."""
    os.nice(_NICENESS)
    end = time.monotonic() + seconds
    count, model = ATTACKS[name]
    clients = [_open(name, model, port, grpc_port) for _ in range(count)]
    size, pause_s = (100, 0.5) if name.startswith("read slowly") else (1 << 20, 0.02)
    while time.monotonic() < end:
        for client in clients if name.startswith("read") else ():
            with suppress(BlockingIOError):
                client.recv(size)
        time.sleep(pause_s)
    os._exit(0)  # all of them leave at once


@contextmanager
def attacking(server: Server, name: str, seconds: float) -> Iterator[None]:
    words = ["--attack", name, "--port", str(server.http_port), "--grpc", str(server.grpc_port)]
    command = [sys.executable, "-m", __spec__.name, *words, "--seconds", str(seconds)]
    with subprocess.Popen(command) as process:
        yield
        process.wait()


# ---------------------------------------------------------------------- others

#: Waits in seconds by request and address.
Waits = dict[tuple[str, str], list[float]]


def _ask(server: Server, name: str, place: str) -> None:
    with socket.create_connection((OWN, server.http_port), 60, (place, 0)) as client:
        client.sendall(_HTTP[name])
        answer = client.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200"), answer


def _ask_over_grpc(server: Server, name: str, place: str) -> None:
    path, message = _GRPC[name]
    call = h2.headers_frame(1, path) + h2.data_frame(1, message, flags=h2.END_STREAM)
    client = h2.Connection(server.grpc_port, h2.PREFACE + h2.settings_frame({}) + call, place)
    try:
        answer = client.read_until(b"grpc-status")
    finally:
        client.close()
    assert b"grpc-status\x010" in answer, answer


def ask(server: Server, name: str, place: str) -> float:
    """Send a request on a connection of its own; return the seconds until its answer."""
    begun = time.monotonic()
    (_ask if name in _HTTP else _ask_over_grpc)(server, name, place)
    return time.monotonic() - begun


def ask_beside(server: Server, seconds: float) -> Waits:
    """Send each kind of request again and again."""
    waits: Waits = defaultdict(list)
    end = time.monotonic() + seconds

    def run(name: str, place: str) -> None:
        while time.monotonic() < end:
            waits[name, place].append(ask(server, name, place))
            time.sleep(PAUSE_S)

    threads = [threading.Thread(target=run, args=each) for each in ASKS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits


def longest_turn_ms(server: Server) -> float:
    """Return the longest turn of a loop of HTTP or gRPC, without waits for a processor."""
    _, status = server.request_json("/v2/zmqtriton/status")
    rows = [each for each in status["processes"] if each["role"] in ("http", "grpc")]
    turns = [each.get("longest_turn") for each in rows]
    return max((1000 * (turn["cpu_s"] + turn["stood_s"]) for turn in turns if turn), default=0.0)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _measure(name: str, calm_s: float, seconds: float) -> None:
    count, model = ATTACKS[name]
    with serving((), prepare) as server, Machine() as machine, Gauge(server) as gauge:
        for pid in server.stub_pids(model):
            os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
        calm = ask_beside(server, calm_s)
        before, begun = gauge.take_peak().own, time.monotonic()
        with attacking(server, name, seconds + 1.0):
            loaded = ask_beside(server, seconds)
            late_ms = machine.longest_ms(begun, time.monotonic())
            turn_ms = longest_turn_ms(server)
        peak = gauge.take_peak().own
    more = ", ".join(f"{role} {peak[role] - before[role]:+} MiB" for role in ("http", "grpc"))
    _print(f"{count} streams, {name}: longest turn {turn_ms:.0f} ms, {more}")
    _print(f"  machine {late_ms:.0f} ms late")
    for name, place in ASKS:
        columns = [*percentiles(calm[name, place]), *percentiles(loaded[name, place])]
        who = f"  {name}, {'same' if place == OWN else 'other'} address"
        _print(f"{who:24}" + "".join(f"{one:9.1f}" for one in columns))


def main() -> None:
    arguments = parse_options(
        __doc__,
        only=("", "attacks with this in their name"),
        calm=(3.0, "seconds without the attack"),
        seconds=(15.0, "of each attack"),
        attack=("", "the attack of an attacker's process, which needs two ports"),
        port=(0, "of HTTP"),
        grpc=(0, "the port of gRPC"),
    )
    if arguments.attack:
        _attack(arguments.attack, arguments.port, arguments.grpc, arguments.seconds)
    heads = [f"{kind} {what}" for kind in ("calm", "with") for what in ("p50", "p99", "max")]
    _print(f"{'waits in ms':24}" + "".join(f"{head:>9}" for head in heads))
    for name in ATTACKS:
        if arguments.only in name:
            _measure(name, arguments.calm, arguments.seconds)


if __name__ == "__main__":
    main()
