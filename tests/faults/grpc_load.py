"""Many streams and many cancelled calls over gRPC; what must hold is asserted here.

The system tests run these in small, `make faults` in full. Needs a server with MODELS.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import grpc.aio
import psutil

from tests.faults.requests import (
    INFER,
    STREAM,
    STREAM_RESPONSE,
    grpc_request,
    token_index,
    tokens,
)
from tests.support.server import Server
from tests.support.waiting import eventually

MODELS = ("tokens", "journal", "identity_fp32")
STREAMS, RESPONSES, CANCELS, READERS = 500, 200, 10_000, 100
#: Enough that a stream of it waits for its reader somewhere.
_FLOOD = 50_000
_CANCEL_WITHIN_S = 0.2
_SHARE_CANCELLED = 0.95
_AT_ONCE = 100
#: As many streams as one connection has.
_PER_CONNECTION = 100
#: Empty segments go back after some seconds.
_REST_S = 60.0
_PATIENCE_S = 300.0
#: Of a request to `journal`.
_ID = ("BYTES", (1, 1), b"\1\0\0\0x")


def _stream(channel: Any, request: Any) -> Any:
    """A stream with one request, which then says that it asks no more."""
    return channel.stream_stream(STREAM)(iter([request.SerializeToString()]))


def _check_response(data: bytes) -> tuple[int, bool]:
    """Its number and whether it is the last."""
    response = STREAM_RESPONSE.FromString(data)
    is_last = response.infer_response.parameters["triton_final_response"].bool_param
    return token_index(response), is_last


async def _follow(channel: Any, responses: int) -> None:
    """One stream to its end: complete, in order, with one final response, the last."""
    got = [_check_response(data) async for data in _stream(channel, tokens(responses))]
    assert [(index, index == responses - 1) for index in range(responses)] == got


async def _follow_many(server: Server, streams: int, responses: int) -> float:
    """The seconds that they took, all at once."""
    channels = [
        # Else channels of the same address share a connection.
        grpc.aio.insecure_channel(server.grpc_address, options=[("number", number)])
        for number in range(-(-streams // _PER_CONNECTION))
    ]
    start = time.monotonic()
    work = (_follow(channels[n % len(channels)], responses) for n in range(streams))
    await asyncio.wait_for(asyncio.gather(*work), _PATIENCE_S)
    seconds = time.monotonic() - start
    await asyncio.gather(*(channel.close() for channel in channels))
    return seconds


def run_streams(server: Server, streams: int = STREAMS, responses: int = RESPONSES) -> float:
    """Streams at once, each of them complete; the seconds that it took."""
    return asyncio.run(_follow_many(server, streams, responses))


# --------------------------------------------------------------------- cancels


async def _cancel_one(channel: Any, chance: random.Random) -> str:
    """Return how a call ended that was probably cancelled some time after it began."""
    kind = chance.randrange(4)
    if kind < 2:
        # Streams whose responses come all at once, and such that are cancelled midway.
        call = _stream(channel, tokens(50, 2000 * kind))
    else:
        request = (
            grpc_request(
                "journal", ID=_ID, MS=("INT32", (1, 1), bytes([chance.randrange(3), 0, 0, 0]))
            )
            if kind == 2
            else grpc_request("identity_fp32", INPUT0=("FP32", (100_000,), bytes(400_000)))
        )
        call = channel.unary_unary(INFER)(request.SerializeToString())
    # Some are left alone, so that it takes no quick machine to answer one.
    if chance.random() < _SHARE_CANCELLED:
        asyncio.get_running_loop().call_later(chance.random() * _CANCEL_WITHIN_S, call.cancel)
    try:
        if kind < 2:
            assert list(range(50)) == [_check_response(data)[0] async for data in call]
        else:
            await call
    except asyncio.CancelledError:
        return "cancelled"
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "answered"


async def _cancel_many(server: Server, cancels: int, seed: int) -> Counter[str]:
    ends: Counter[str] = Counter()
    chance = random.Random(seed)
    left = iter(range(cancels))
    async with grpc.aio.insecure_channel(server.grpc_address) as channel:

        async def go_on() -> None:
            for _ in left:
                ends[await _cancel_one(channel, chance)] += 1

        await asyncio.wait_for(asyncio.gather(*(go_on() for _ in range(_AT_ONCE))), _PATIENCE_S)
    return ends


class _ServerResources(NamedTuple):
    """The resources of a server that does nothing."""

    pids: dict[str, list[int]]
    descriptors: dict[str, int]
    segments: int


def _server_resources(server: Server) -> _ServerResources:
    pids = server.pids()
    held = {role: sum(psutil.Process(pid).num_fds() for pid in own) for role, own in pids.items()}
    return _ServerResources(pids, held, metrics_of(server)["zmqtriton_shared_memory_bytes"])


def metrics_of(server: Server) -> Counter[str]:
    """The sums over all labels."""
    sums: Counter[str] = Counter()
    for name, value in re.findall(r"^(\w+)\S* (\d+)", server.metrics_text(), re.MULTILINE):
        sums[name] += int(value)
    return sums


def _is_idle(server: Server) -> bool:
    metrics = metrics_of(server)
    return not (metrics["nv_inference_pending_request_count"] or metrics["zmqtriton_leased_blocks"])


def cancel_many(server: Server, cancels: int = CANCELS, seed: int = 1) -> Counter[str]:
    """Calls cancelled at any instant; nothing of them stays. How they ended, by kind."""
    # Connections between processes that are made once and stay.
    asyncio.run(_cancel_many(server, _AT_ONCE, seed))
    eventually(lambda: _is_idle(server), _REST_S, "idle before")
    eventually(lambda: _server_resources(server).segments == 0, _REST_S, "segments gone before")
    before = _server_resources(server)

    ends = asyncio.run(_cancel_many(server, cancels, seed + 1))

    assert {"cancelled", "answered"} >= set(ends), ends
    assert "Traceback" not in server.log_text(), server.log_text()[-3000:]
    eventually(lambda: _is_idle(server), _REST_S, "nothing pending, nothing lent")

    now = before

    def is_as_before() -> bool:
        nonlocal now
        now = _server_resources(server)
        # This very look has a connection to metrics, which may not be closed there yet.
        has_more = any(
            now.descriptors[r] > held for r, held in before.descriptors.items() if r != "metrics"
        )
        return before.pids == now.pids and now.segments == 0 and not has_more

    with suppress(AssertionError):
        eventually(is_as_before, _REST_S)
    assert is_as_before(), f"before: {before}, now: {now}"
    return ends


def cancel_streams(server: Server, times: int, max_s: float, seed: int = 1) -> None:
    """Ask for streams, and leave each after a time of which nobody knows what has happened."""
    chance, request = random.Random(seed), tokens(50).SerializeToString()
    with grpc.insecure_channel(server.grpc_address) as channel:
        for _ in range(times):
            requests = iter([request] * chance.randint(1, 5))
            answers = channel.stream_stream(STREAM)(requests, timeout=60)
            time.sleep(chance.random() * max_s)
            answers.cancel()


# ------------------------------------------------------------ a reader that stops


async def _follow_beside(server: Server, readers: int, responses: int) -> tuple[float, float]:
    alone = await _follow_many(server, readers - 1, responses)
    async with grpc.aio.insecure_channel(server.grpc_address) as channel:
        stopped = _stream(channel, tokens(_FLOOD))
        assert _check_response(await stopped.read()) == (0, False)
        beside = await _follow_many(server, readers - 1, responses)
        assert not stopped.done()
        stopped.cancel()
    return alone, beside


def run_streams_beside_stalled(
    server: Server, readers: int = READERS, responses: int = RESPONSES
) -> tuple[float, float]:
    """The others end while one does not read; the seconds they took without it, and with it."""
    seconds = asyncio.run(_follow_beside(server, readers, responses))
    eventually(lambda: _is_idle(server), _REST_S, "the stopped one is gone")
    return seconds
