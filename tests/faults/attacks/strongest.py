"""Attacks that are the same each time: what a server without bounds for them falls to.

The others draw sizes and numbers by lot; here only the addresses of the clients are. Some return
what became of requests that should be answered meanwhile.
"""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.faults.attacks import at_the_door, over_grpc, over_http
from tests.faults.attacks.over_grpc import UNREAD, WIDE
from tests.faults.attacks.target import ECHO, OVERWRITING, Attacker, message_frames, pack
from tests.faults.attacks.watching import MIB
from tests.faults.requests import INFER, STREAM
from tests.support import raw_http2 as h2
from tests.support.server import tensor

#: What a compressed message becomes; it is a thousandth on its way.
_BOMB_BYTES = 200 * MIB
_PATIENCE_S = 60.0
_CHEAP = (*over_grpc.CHEAP, "pieces")
#: A server may say 100 before it, to hear whether a half-closed client is still there.
_FINAL_STATUS = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ")


def small_answers(attack: Attacker) -> None:
    """A stream with a thousand requests, whose answers are below 1 MiB and are not read."""
    client = attack.call(UNREAD)
    if client is not None:
        over_grpc.ask_on_stream(attack, client, 800, 1024)


def large_answers(attack: Attacker) -> None:
    """Streams with an answer of 64 MiB each that is not read."""
    for client in attack.calls(16, UNREAD):
        over_grpc.ask_on_stream(attack, client, 64 << 10, 1)


def compressed(attack: Attacker, path: str, *, has_token: bool = True) -> None:
    """Compressed requests, on streams or in one piece, maybe of clients that may ask nothing."""
    if not has_token:
        attack.target = attack.target._replace(token="")
    packed = pack(over_grpc.floats(_BOMB_BYTES), "gzip")
    whole = message_frames(1, packed, is_compressed=True, is_last=path == INFER)
    for client in attack.calls(6, WIDE):
        client.send_within(5.0, attack.begin(1, path, encoding="gzip"), whole)


def calls_at_once(attack: Attacker) -> str:
    """Calls whose answers are below 1 MiB and are not read; others want an answer above it."""
    client = attack.call(UNREAD)
    if client is not None:
        over_grpc.ask_at_once(attack, client, 1000, 400)
    return _ask_again(attack, lambda: _ask_large(attack))


def _ask_large(attack: Attacker) -> str:
    """Ask for 2 MiB over gRPC, from the address of honest clients."""
    try:
        client = h2.Connection(attack.target.grpc_port, WIDE, "127.0.0.1")
    except OSError:
        return "not connected"
    with client:
        data = h2.data_frame(1, over_grpc.sized(2048), flags=h2.END_STREAM)
        client.send(attack.begin(1, INFER), data)
        answer = client.read_until(b"grpc-status", _PATIENCE_S)
    return "right" if len(answer) > 2 * MIB else "refused"


def metadata(attack: Attacker) -> None:
    """Open streams with metadata of a hundred times the bytes on the wire."""
    for client in attack.calls(12):
        over_grpc.send_blocks(client, over_grpc.blocks_of_table(attack, STREAM, 3900, 14))


def half_closed(attack: Attacker) -> str:
    """Clients that close their half of the connection behind their request."""
    data = attack.ask(f"/v2/models/{ECHO}/infer", {"inputs": [tensor("INPUT0", "FP32", [5])]})
    return _ask_again(attack, lambda: _status(attack, data, is_half_closed=True))


def overwritten_page(attack: Attacker) -> str:
    """Requests to a model that overwrites the page that tells how far it is."""
    data = attack.ask(f"/v2/models/{OVERWRITING}/infer", {"inputs": [tensor("KIB", "INT32", [1])]})
    return _ask_again(attack, lambda: _status(attack, data))


def _ask_again(attack: Attacker, ask: Callable[[], str]) -> str:
    """Ask one time after the other; return what became of it."""
    outcomes, longest_s = Counter[str](), 0.0
    while not attack.is_over:
        begun = time.monotonic()
        outcomes[ask()] += 1
        longest_s = max(longest_s, time.monotonic() - begun)
        time.sleep(0.05)
    parts = [f"{count} {outcome}" for outcome, count in outcomes.most_common()]
    return f"{', '.join(parts)}; the longest took {longest_s * 1000:.0f} ms"


def _status(attack: Attacker, data: bytes, *, is_half_closed: bool = False) -> str:
    connection = attack.connect(data)
    if connection is None:
        return "not connected"
    answer = b""
    with connection:
        connection.settimeout(_PATIENCE_S)
        try:
            if is_half_closed:
                connection.shutdown(socket.SHUT_WR)
            while not (final := _FINAL_STATUS.search(answer)):
                if not (more := connection.recv(1 << 16)):
                    return "no answer"
                answer += more
        except OSError as error:
            return type(error).__name__
    return "right" if final[1] == b"200" else final[1].decode()


ATTACKS: dict[str, Callable[[Attacker], str | None]] = {
    "answers of a stream, small, not read": small_answers,
    "answers of streams, large, not read": large_answers,
    # every flood of headers at once, a connection for each
    "headers that cost much": partial(
        over_grpc.send_floods, name_of=over_grpc.DEAR.__getitem__, count=len(over_grpc.DEAR)
    ),
    "compressed requests": partial(compressed, path=STREAM),
    "answers of calls, not read": calls_at_once,
    "open streams with metadata, a thousand": metadata,
    # more than there may be
    "connections amid a request": partial(
        over_http.begin_requests, silent="ModelStreamInfer", count=700
    ),
    "templates without an end": over_http.endless_templates,
    "compressed requests without token": partial(compressed, path=INFER, has_token=False),
    # every flood of frames that cost their sender nothing at once, a connection for each
    "frames that cost nothing": partial(
        over_grpc.send_floods, name_of=_CHEAP.__getitem__, count=len(_CHEAP)
    ),
    "half-closed connections": half_closed,
    "a model that overwrites its page": overwritten_page,
    # at 2 KiB a second
    "answers of 64 MiB, read slowly": partial(
        over_http.read_slowly, kib=64 << 10, clients=16, pauses_s=(1.0,)
    ),
    "answers of 8 MiB at the door, not read": partial(
        at_the_door.unread_echoes, clients=12, kib=8 << 10
    ),
}
