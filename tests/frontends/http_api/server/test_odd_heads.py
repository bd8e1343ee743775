"""Odd heads of requests, and turns of connections."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from contextlib import ExitStack

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated

from tests.frontends.fake_gateway import failing
from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.server.test_inferences import INFER, JSON
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.inference.catalogue import STOPPING
from zmqtriton_frontends.process.turns import Turns

pytestmark = pytest.mark.slow


# --------------------------------------------------------------------------- odd heads
# Requests that could mean one thing to us and another to somebody before us.
# A proxy, say.


ONE = raw_request("POST", INFER, JSON)


#: Whoever is asked this last has read all before it.
LAST = raw_request("GET", "/v2/health/live", Connection="close")


SMUGGLED = raw_request("GET", "/v2/smuggled")


LENGTH = b"Content-Length: %d" % len(JSON)


async def ask(house: HttpHarness, *pieces: bytes) -> list[bytes]:
    """All that came back until the server closed, without dates and with the headers sorted."""
    reader, writer = await house.connections.connect()
    for piece in pieces:
        writer.write(piece)
        await house.connections.run_loop()
    writer.write_eof()
    data = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return list(map(alike, re.split(rb"HTTP/1\.[01] ", data)[1:]))


_AT_A_TIME = 16


Answers = dict[str, list[bytes]]


def ask_all(conversations: dict[str, list[bytes]]) -> Answers:
    """Hold the conversations, and return the answers to each."""
    answers: Answers = {}

    async def scenario(house: HttpHarness) -> None:
        left = iter(conversations.items())

        async def ask_some() -> None:
            for name, pieces in left:
                answers[name] = await ask(house, *pieces)

        await asyncio.gather(*(ask_some() for _ in range(_AT_A_TIME)))

    run_scenario(scenario)
    return answers


def alike(response: bytes) -> bytes:
    head, _, body = response.partition(b"\r\n\r\n")
    first, *named = re.sub(rb"\r\nDate: [^\r]+", b"", head).split(b"\r\n")
    return b"\r\n".join([first, *sorted(map(bytes.lower, named)), b"", body])


def with_line(line: bytes) -> bytes:
    return ONE.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)


def with_length(value: bytes) -> bytes:
    return ONE.replace(LENGTH, b"Content-Length:" + value)


#: Heads, by the statuses that they and the two requests behind them get.
HEADS: dict[tuple[int, ...], dict[str, bytes]] = {
    (501,): {
        "chunks that are none": with_line(b"Transfer-Encoding: identity"),
    },
    (400,): {
        "two lengths": with_line(b"Content-Length: 3"),
        "a length twice": with_line(LENGTH),
        "a length with a sign": with_length(b" +%d" % len(JSON)),
        "a length below zero": with_length(b" -1"),
        "a length in pieces": with_length(b" 1 2"),
        "a length with a line": with_length(b" 1_0"),
        "a length in hexadecimal": with_length(b" 0x10"),
        "no length": with_length(b""),
        "a list of lengths": with_length(b" 5, 5"),
        "digits of another script": with_length(" \u0663".encode()),
        "chunks too": with_line(b"Transfer-Encoding: chunked"),
        "a name with a space": with_line(b"Transfer-Encoding : chunked"),
        "a folded line": with_line(b"X: y\r\n z"),
        "a folded line at the beginning": with_line(b" X: y"),
        "no name": with_line(b": y"),
        "no colon": with_line(b"X"),
        "a line feed alone": with_line(b"X: y\nContent-Length: 0"),
        "a return alone": with_line(b"X: y\rContent-Length: 0"),
        "a zero": with_line(b"X: a\0b"),
        "a zero in a name": with_line(b"X\0: a"),
        "no host": ONE.replace(b"Host: localhost\r\n", b""),
        "two hosts": with_line(b"Host: y"),
        "an odd host": ONE.replace(b"localhost", b"a b/?c", 1),
        "two types": with_line(b"Content-Type: a\r\nContent-Type: b"),
        "another host in the target": ONE.replace(INFER.encode(), b"http://y" + INFER.encode()),
        "a newer HTTP": ONE.replace(b"HTTP/1.1", b"HTTP/1.2"),
        "HTTP in small letters": ONE.replace(b"HTTP/1.1", b"http/1.1"),
        "no HTTP": ONE.replace(b" HTTP/1.1", b""),
        "two spaces": ONE.replace(b"POST /", b"POST  /"),
        "a method in small letters": ONE.replace(b"POST", b"post"),
        "two empty lines before": b"\r\n\r\n" + ONE,
    },
    (505,): {
        "another start": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + ONE,
    },
    (200, 404, 200): {
        "spaces around a length": with_length(b"  \t%d \t" % len(JSON)),
        "a length with zeros": with_length(b" 000%d" % len(JSON)),
        "a length with very many zeros": with_length(b" " + b"0" * 30 + b"%d" % len(JSON)),
        "chunks by another name": with_line(b"Transfer_Encoding: chunked"),
        "signs beyond ASCII": with_line("X: \u00e9".encode()),
        "an empty host": ONE.replace(b"localhost", b"", 1),
        "another type": with_line(b"Content-Type: text/plain"),
        "an absolute target": ONE.replace(INFER.encode(), b"http://localhost" + INFER.encode()),
        "an escaped letter": ONE.replace(b"identity", b"%69dentity"),
        "an escaped slash": ONE.replace(b"models/identity", b"models%2fidentity"),
        "a query": ONE.replace(b"/infer", b"/infer?x=y"),
        "a version with zeros": ONE.replace(b"/infer", b"/versions/001/infer"),
        "an empty line before": b"\r\n" + ONE,
        "another connection": with_line(b"Connection: X"),
        "an expectation": with_line(b"Expect: 100-continue"),
        "an odd expectation": with_line(b"Expect: 200-ok"),
        "an upgrade": with_line(b"Connection: Upgrade\r\nUpgrade: websocket"),
        "another method by a header": with_line(b"X-HTTP-Method-Override: GET"),
        "another path by a header": with_line(b"Script-Name: /v2"),
        "a proxy's scheme": with_line(b"X-Forwarded-Proto: https"),
        "a proxy's schemes that differ": with_line(
            b"X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off"
        ),
        "a web page that had to ask": with_line(
            b"Origin: http://evil\r\nContent-Type: application/json"
        ),
        "a web page of the same origin": with_line(b"Origin: http://localhost"),
        "many headers": with_line(b"\r\n".join(b"X%d: y" % i for i in range(60))),
        "a header of 4 KB": with_line(b"X: " + b"y" * 4096),
        "an odd coding": with_line(b"Accept-Encoding: gzip;q=x, ,;,"),
    },
    (403, 404, 200): {
        "a web page": with_line(b"Origin: http://evil"),
    },
    (413,): {
        "a length beyond 64 bits": with_length(b" 99999999999999999999"),
    },
    (400, 400): {
        "a length of nothing": with_length(b" 0"),
        "no length at all": ONE.replace(LENGTH + b"\r\n", b""),
    },
    (400, 404, 200): {
        "an escaped zero": ONE.replace(b"identity", b"identity%00"),
        "two dots": ONE.replace(b"identity", b".."),
        "a dot": ONE.replace(b"identity", b"."),
        "a version beyond 64 bits": ONE.replace(b"/infer", b"/versions/%d/infer" % 2**64),
        "a name of 255 letters": ONE.replace(b"identity", b"a" * 255),
        "a length of the JSON with a sign": with_line(b"Inference-Header-Content-Length: +5"),
        "a length of the JSON beyond all": with_line(
            b"Inference-Header-Content-Length: 99999999999"
        ),
        "a length of the JSON twice": with_line(
            b"Inference-Header-Content-Length: 1\r\n" * 2 + b"X: y"
        ),
    },
    (404, 404, 200): {
        "dots before": ONE.replace(b"/v2", b"/../v2"),
        "dots within": ONE.replace(b"/identity", b"/x/../identity"),
        "two slashes": ONE.replace(b"/identity", b"//identity"),
        "a slash behind": ONE.replace(b"/infer", b"/infer/"),
        "a fragment": ONE.replace(b"/infer", b"/infer#x"),
        "a version below zero": ONE.replace(b"/infer", b"/versions/-1/infer"),
        "a very large version": ONE.replace(b"/infer", b"/versions/%d/infer" % 10**17),
        "a name of 256 letters": ONE.replace(b"identity", b"a" * 256),
    },
    (200,): {
        "an older HTTP": ONE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        "an end": with_line(b"Connection: close"),
        "an end among others": with_line(b"Connection: keep-alive, close"),
    },
    (431,): {
        "too many headers": with_line(b"\r\n".join(b"X%d: y" % i for i in range(120))),
        "a header of 9 KB": with_line(b"X: " + b"y" * 9000),
    },
}


@pytest.fixture(scope="module")
def answers() -> Answers:
    """Return the answers by the names of HEADS.

    Each head comes after an inference and before one that must not be answered if the
    head is refused.
    """
    heads = {name: data for group in HEADS.values() for name, data in group.items()}
    return ask_all({name: [ONE, data + SMUGGLED + LAST] for name, data in heads.items()})


@pytest.mark.parametrize(
    ("name", "statuses"), [(name, statuses) for statuses, group in HEADS.items() for name in group]
)
@pytest.mark.row("C34")
def test_an_odd_head_means_one_thing(
    answers: Answers, name: str, statuses: tuple[int, ...]
) -> None:
    assert (200, *statuses) == tuple(int(answer[:3]) for answer in answers[name])


@scenario(run_scenario)
async def test_a_client_of_http2_learns_why_its_connection_ends(house: HttpHarness, /) -> None:
    client = H2Connection()
    client.initiate_connection()
    names = (":method", ":path", ":scheme", ":authority")
    client.send_headers(1, list(zip(names, ("GET", "/v2", "http", "x"), strict=True)))
    reader, writer = await house.connections.connect()

    writer.write(client.data_to_send())
    await house.connections.run_loop()
    writer.write_eof()
    *_, end = client.receive_data(await asyncio.wait_for(reader.read(), 20))
    writer.close()

    assert isinstance(end, ConnectionTerminated)
    assert ErrorCodes.HTTP_1_1_REQUIRED == end.error_code
    assert b"This port speaks HTTP/1.1, not HTTP/2" in (end.additional_data or b"")


def test_a_damaged_head_ends_its_connection_or_leaves_the_next_request_whole() -> None:
    head, _, body = ONE.partition(b"\r\n\r\n")
    dice = random.Random(7)
    damages = [b"", b"\r", b"\n", b"\r\n", b" ", b":", b"\0", b"\xff", b"0", b"\t"]
    conversations = {"whole": [ONE, LAST]}
    for number in range(300):
        damaged = bytearray(head)
        for _ in range(dice.randint(1, 3)):
            at = dice.randint(0, len(damaged))
            damaged[at : at + dice.randint(0, 2)] = dice.choice(damages)
        conversations[f"{number}: {damaged!r}"] = [
            ONE,
            bytes(damaged) + b"\r\n\r\n" + body + ONE + LAST,
        ]

    answers = ask_all(conversations)

    whole = answers.pop("whole")
    ends = 0
    for name, got in answers.items():
        assert got[0] == whole[0], name
        is_ended = got[-1] != whole[1]
        ends += is_ended
        closes = [b"connection: close\r\n" in answer for answer in got]
        assert closes == [False] * (len(got) - 1) + [True], name
        # of the requests behind one that is refused none is answered
        assert got[-1][:3] in (b"400", b"414", b"431", b"501", b"505", b"200"), name
        assert is_ended or got[-2] == whole[0], name
    assert 0 < ends < len(answers)


@scenario(run_scenario)
async def test_who_is_refused_while_the_server_leaves_is_to_connect_anew(
    house: HttpHarness, /
) -> None:
    reader, writer = await house.connections.connect(ONE)
    assert b"200 OK" in await reader.readline()
    await reader.readuntil(b"}]}")
    house.gateway.respond = failing(Unavailable(STOPPING))
    house.connections.connections.is_leaving = True

    writer.write(ONE)

    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert 1 == answer.lower().count(b"connection: close\r\n")
    assert STOPPING.encode() in answer


@scenario(run_scenario)
async def test_a_head_that_waits_for_its_body_is_told_that_the_server_ends(
    house: HttpHarness, /
) -> None:
    reader, _ = await house.connections.connect(ONE.removesuffix(JSON))

    house.connections.connections.end(is_followed=False)
    house.connections.connections.end_still(1.0)
    house.connections.now += 2.0
    house.connections.connections.end_still(1.0)

    answer = await reader.readuntil(b"}")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert STOPPING.encode() in answer
    assert house.gateway.requests == []


# ------------------------------------------------------------------------------- turns
# Many inferences at once: the loop does a few of them, and then everything else.


CLIENTS, MOST = 40, 8


TENSOR = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [0.5]}


BODY = json.dumps({"inputs": [TENSOR]}).encode()


LONG = raw_request("POST", "/v2/models/identity/infer", BODY.ljust(10 << 10))


SHORT = raw_request("POST", "/v2/models/identity/infer", BODY)


@pytest.mark.parametrize(("data", "number"), [(LONG, 1), (SHORT * 3, 3)])
@scenario(run_scenario)
async def test_a_turn_of_the_loop_ends_after_some_inferences(
    harness: HttpHarness, /, data: bytes, number: int
) -> None:
    turn, begun, begins = [0], Counter[int](), harness.gateway.pending_tasks

    def clock() -> float:
        return 0.002 * len(begins)  # each takes so long

    async def count_turns() -> None:
        while True:
            before = len(begins)
            await asyncio.sleep(0)
            turn[0] += 1
            begun[turn[0]] = len(begins) - before

    later = asyncio.get_running_loop().call_soon
    harness.connections.connections.turns = Turns(later, clock, clock)
    counting = asyncio.create_task(count_turns())
    with ExitStack() as stack:
        port = harness.connections.address[1]
        clients = [
            stack.enter_context(await asyncio.to_thread(connect_narrow, port))
            for _ in range(CLIENTS)
        ]
        await asyncio.sleep(0.1)
        for client in clients:  # while the loop does nothing else
            client.sendall(data)
        while len(begins) < CLIENTS * number:
            await asyncio.sleep(0.01)
    counting.cancel()
    # what comes as one small request is read as it comes
    assert len(begins) == CLIENTS * number
    assert len([count for count in begun.values() if count > MOST]) <= (number > 1)
