"""Attacks over HTTP: on the routes of inference, generate, and OpenAI's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.faults.attacks.target import (
    ECHO,
    ENDLESS,
    SIZED,
    SPOKEN,
    STREAMED,
    TEMPLATES,
    Attacker,
    pack,
)
from tests.faults.attacks.watching import MIB
from tests.support import raw_http2 as h2
from tests.support.raw_http import raw_request
from tests.support.server import tensor

_INFER = f"/v2/models/{ECHO}/infer"


def pipelining(attack: Attacker) -> None:
    """Many requests at once on each connection, whose answers are not read."""
    path = attack.chance.choice(("/v2", f"/v2/models/{ECHO}/config", "/nowhere"))
    many = attack.request(path) * attack.between(20, 500)
    connections = [*attack.connections(attack.between(5, 80))]
    while not attack.is_over:
        for connection in connections:
            with suppress(OSError):
                connection.send(many)
        time.sleep(0.01)


def endless_bodies(attack: Attacker) -> None:
    """Bodies of which much comes, and never all."""
    head = attack.request(_INFER, b"x", Content_Length="1000000000")[:-1]
    attack.pour(bytes(attack.between(MIB, 16 * MIB)), attack.between(4, 40), 0.5, head=head)


def silence(attack: Attacker) -> None:
    """Connections on which nothing comes, over HTTP and gRPC."""
    for _ in range(attack.between(30, 200)):
        attack.connect()
        attack.call()


def trickle(attack: Attacker) -> None:
    """Heads that come byte by byte."""
    connections = attack.connections(attack.between(30, 800), b"GET /v2 HTTP/1.1\r\nX: ")
    attack.trickle(connections, b"a" * 1000, 0.3)


def half_requests(attack: Attacker) -> None:
    """More connections than there may be, each amid its request, over HTTP and gRPC."""
    kinds = ("ModelStreamInfer", "ModelInfer")
    begin_requests(attack, attack.chance.choice(kinds), attack.chance.randint(500, 800))


def begin_requests(attack: Attacker, silent: str, count: int) -> None:
    """Begin so many over HTTP, and as many of a method over gRPC, and say nothing more."""
    half = attack.request(_INFER, b"x" * 8, Content_Length="9")
    for _ in range(count):
        if attack.is_over:
            break
        attack.connect(half)
        client = attack.call()
        if client is not None:
            with suppress(OSError):
                client.send(attack.begin(1, f"/inference.GRPCInferenceService/{silent}"))


def inflating_bodies(attack: Attacker) -> None:
    """Bodies that become a thousand times as large."""
    coding = attack.chance.choice(("gzip", "deflate"))
    numbers = attack.chance.choice((b"0,", b"0.5,", b"[],", b'"",', b"NaN,"))
    body = pack(b"[" + numbers * (MIB // len(numbers)), coding, attack.between(1, 24))
    path = attack.chance.choice((_INFER, "/v1/chat/completions", f"/v2/models/{ECHO}/generate"))
    data = attack.request(path, body, Content_Encoding=coding)
    for _ in range(attack.between(2, 12)):
        attack.connect(data)


def slow_documents(attack: Attacker) -> None:
    """Documents that are read number by number."""
    body = b'{"inputs":[' + b"0.1," * attack.between(MIB // 4, 3 * MIB) + b"NaN]}"
    attack.pour(attack.request(_INFER, body), attack.between(1, 4), 10)


def sized(attack: Attacker, kib: int, *, is_binary: bool) -> bytes:
    parameters = {"binary_data_output": is_binary}
    document = {"inputs": [tensor("KIB", "INT32", [kib])], "parameters": parameters}
    return attack.ask(f"/v2/models/{SIZED}/infer", document)


def unread_answers(attack: Attacker) -> None:
    """Answers of all sizes, as text or as bytes, that are not read."""
    is_binary = attack.chance.random() < 0.7
    for _ in range(attack.between(4, 60)):
        kib = attack.between(16, 32 << 10 if is_binary else 2 << 10)
        attack.connect(sized(attack, kib, is_binary=is_binary), 4096)


def slow_readers(attack: Attacker) -> None:
    """Large answers that are read a few KiB at a time."""
    read_slowly(attack, attack.between(4 << 10, 64 << 10), attack.between(4, 16), (0.1, 0.5, 1.0))


def read_slowly(attack: Attacker, kib: int, clients: int, pauses_s: Sequence[float]) -> None:
    """Read answers of that size, 2 KiB between two pauses."""
    connections = [*attack.connections(clients, sized(attack, kib, is_binary=True), 4096)]
    for connection in connections:
        connection.setblocking(False)
    while not attack.is_over:
        for connection in connections:
            with suppress(OSError):
                connection.recv(2048)
        time.sleep(attack.chance.choice(pauses_s))


def unread_events(attack: Attacker) -> None:
    """Streams of generate that are not read."""
    data = attack.ask(f"/v2/models/{STREAMED}/generate_stream", {"COUNT": 2_000_000_000})
    for _ in range(attack.between(10, 200)):
        attack.connect(data, 4096)


def unread_chats(attack: Attacker) -> None:
    """Streams of chats and completions, and long answers of theirs, that are not read."""
    words = attack.chance.choice(("FOREVER", "word " * attack.between(1000, 100_000)))
    chat = {"messages": [{"role": "user", "content": words}]}
    question = chat if attack.chance.random() < 0.5 else {"prompt": words}
    path = "/v1/chat/completions" if question is chat else "/v1/completions"
    is_streamed = words == "FOREVER" or attack.chance.random() < 0.5
    data = attack.ask(path, {"model": SPOKEN, **question, "stream": is_streamed})
    for _ in range(attack.between(4, 60)):
        attack.connect(data, 4096)


def endless_templates(attack: Attacker) -> None:
    """Chats whose template does not end, asked by clients that leave, and others."""
    say: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
    chats = [
        attack.ask("/v1/chat/completions", {"model": f"{ENDLESS}{number}", **say})
        for number in range(TEMPLATES)
    ]
    attack.knock(lambda: attack.chance.choice(chats), (0.05, 0.6), leaving=0.7)


def garbage(attack: Attacker) -> None:
    """Requests and prefaces of which some bytes are others."""
    whole = raw_request("POST", _INFER, b"{}", Accept="x") * 3
    while not attack.is_over:
        damaged = bytearray(whole if attack.chance.random() < 0.5 else h2.PREFACE * 9)
        for _ in range(attack.chance.randint(1, 9)):
            damaged[attack.chance.randrange(len(damaged))] = attack.chance.randrange(256)
        if attack.chance.random() < 0.5:
            connection: Any = attack.connect(bytes(damaged))
        else:
            connection = attack.call(bytes(damaged))
        time.sleep(0.01)
        if connection is not None:
            connection.close()


ATTACKS = {
    "pipelining": pipelining,
    "bodies that never end": endless_bodies,
    "connections that say nothing": silence,
    "heads byte by byte": trickle,
    "half requests beyond the descriptors": half_requests,
    "bodies that inflate": inflating_bodies,
    "documents with NaN": slow_documents,
    "HTTP answers, not read": unread_answers,
    "HTTP answers, read slowly": slow_readers,
    "generate_stream, not read": unread_events,
    "OpenAI, not read": unread_chats,
    "chat templates without an end": endless_templates,
    "strange bytes": garbage,
}
