"""Hostile gRPC clients: refused, bounded, and no other client's trouble."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton

from tests.faults.cancelled_streams import cancel, token_request, unanswered_requests
from tests.support import raw_http2 as h2
from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_protos import message

pytestmark = pytest.mark.system

LIMIT = (1 << 31) - 1
FLOOD = 5000
STREAMS = 500
#: Less than what these attacks would make a server without limits keep.
SLACK_MIB = 200
SERVICE = "/inference.GRPCInferenceService/"
INFER, STREAM, LIVE = (SERVICE + name for name in ("ModelInfer", "ModelStreamInfer", "ServerLive"))


@pytest.fixture(
    scope="module",
    params=[
        "native",
        # without the native transport the frames are grpcio's to judge
        pytest.param(
            "grpcio",
            marks=pytest.mark.long(
                "frontends/grpc_api/transport/test_each_transport.py::"
                "test_bytes_that_no_client_library_sends_get_a_status",
                "system/attacks/test_grpc_attacks.py::"
                "test_a_flood_of_frames_is_no_other_clients_trouble",
            ),
        ),
    ],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("attacks")
    options = [f"--grpc-transport={request.param}", "--grpc-reflection=false"]
    with Server(directory / "s", models=["identity_fp32", "tokens"], options=options) as server:
        be_served(server)
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """After each attack all processes are the same, no larger, and others are served."""
    pids = running.pids()
    peak = peak_mib(running)
    yield running
    be_served(running)
    eventually(lambda: pids == running.pids(), 60, f"{pids} are all that runs")
    assert peak_mib(running) <= peak + SLACK_MIB
    assert "Traceback" not in running.log_text()


def be_served(server: Server) -> None:
    """As another client is, whatever the attack does meanwhile."""
    [entry] = infer_inputs(triton, INPUT0=np.array([1, 2], np.float32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        answer = client.infer("identity_fp32", [entry], client_timeout=30)
        assert [1.0, 2.0] == answer.as_numpy("OUTPUT0").tolist()


def peak_mib(server: Server) -> int:
    """The most memory that a process of gRPC had."""
    peaks = []
    for pid in server.pids()["grpc"]:
        status = Path(f"/proc/{pid}/status").read_text()
        peaks.append(int(status.split("VmHWM:")[1].split()[0]) >> 10)
    return max(peaks)


def descriptors(server: Server) -> int:
    return sum(psutil.Process(pid).num_fds() for pid in server.pids()["grpc"])


def status(number: int) -> bytes:
    """As it stands in the first trailers of a connection."""
    digits = str(number).encode()
    return b"\x0bgrpc-status" + bytes([len(digits)]) + digits


def test_frames_by_hand_are_understood(server: Server) -> None:
    # That the floods below are refused for what they are.
    with h2.Connection(server.grpc_port) as connection:
        connection.send(h2.headers_frame(1, LIVE), h2.data_frame(1, b"", flags=h2.END_STREAM))

        assert status(0) in connection.read_until(status(0))


@pytest.mark.parametrize("path", [INFER, STREAM])
@pytest.mark.row("D27")
def test_a_message_one_byte_over_the_limit_is_refused_before_it_comes(
    server: Server, path: str
) -> None:
    with h2.Connection(server.grpc_port) as connection:
        connection.send(h2.headers_frame(1, path), h2.data_frame(1, b"x" * 1000, length=LIMIT + 1))
        resource_exhausted = status(8)

        assert resource_exhausted in connection.read_until(resource_exhausted)


def test_a_message_at_the_limit_that_never_comes_holds_no_memory(server: Server) -> None:
    with h2.Connection(server.grpc_port) as connection:
        connection.send(h2.headers_frame(1, INFER), h2.data_frame(1, b"x" * 1000, length=LIMIT))

        be_served(server)
        assert h2.GOAWAY not in connection.frame_types()


# ---------------------------------------------------------------------- floods


def _resets() -> Iterator[bytes]:
    for number in range(FLOOD):
        yield h2.headers_frame(2 * number + 1, INFER) + h2.reset_frame(2 * number + 1)


def _resets_of_requests() -> Iterator[bytes]:
    request = token_request(100)
    for number in range(FLOOD):
        stream = 2 * number + 1
        yield (
            h2.headers_frame(stream, STREAM)
            + h2.data_frame(stream, request)
            + h2.reset_frame(stream)
        )


def _continuations() -> Iterator[bytes]:
    yield h2.headers_frame(1, INFER, flags=0)
    pair = b"\x00\x01a" + b"\x7f\x00" + b"b" * 127
    for _ in range(FLOOD):
        yield h2.frame(h2.CONTINUATION, 0, 1, pair * 8)


def _empty_continuations() -> Iterator[bytes]:
    yield h2.headers_frame(1, INFER, flags=0)
    for _ in range(FLOOD):
        yield h2.frame(h2.CONTINUATION, 0, 1)


def _pings() -> Iterator[bytes]:
    for number in range(FLOOD):
        yield h2.frame(h2.PING, 0, 0, struct.pack(">Q", number))


def _settings() -> Iterator[bytes]:
    for number in range(FLOOD):
        yield h2.settings_frame({4: 65_535 + number % 2})


def _hpack_bomb() -> Iterator[bytes]:
    value = b"v" * 3900
    length = b"\x7f" + bytes([(len(value) - 127) & 0x7F | 0x80, (len(value) - 127) >> 7])
    into_the_table = b"\x40\x01a" + length + value
    newest_of_the_table = b"\xbe"
    block = h2.header_block(INFER) + into_the_table + newest_of_the_table * 8000
    for number in range(20):
        yield h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, block)


def _windows() -> Iterator[bytes]:
    yield h2.headers_frame(1, STREAM)
    for _ in range(FLOOD):
        yield h2.frame(h2.WINDOW, 0, 1, struct.pack(">I", 1))


def _empty_data() -> Iterator[bytes]:
    yield h2.headers_frame(1, STREAM)
    for _ in range(FLOOD):
        yield h2.frame(h2.DATA, 0, 1)


FLOODS = {
    "resets": _resets,
    "resets of requests": _resets_of_requests,
    "continuations": _continuations,
    "empty continuations": _empty_continuations,
    "pings": _pings,
    "settings": _settings,
    "a bomb of headers": _hpack_bomb,
    "windows": _windows,
    "empty frames": _empty_data,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_is_no_other_clients_trouble(server: Server, name: str) -> None:
    before = descriptors(server)

    with h2.Connection(server.grpc_port) as connection:
        for one in FLOODS[name]():
            if not connection.send(one):
                break
        be_served(server)

    eventually(lambda: descriptors(server) <= before, 30, "connections closed")


@pytest.mark.parametrize("name", ["pings", "a bomb of headers"])
def test_who_floods_is_told_to_go(server: Server, name: str) -> None:
    with h2.Connection(server.grpc_port) as connection:
        for one in FLOODS[name]():
            if not connection.send(one):
                break
        connection.read_until(bytes([h2.GOAWAY, 0, 0, 0, 0, 0]))

        assert {h2.GOAWAY, h2.RESET} & set(connection.frame_types())


def test_calls_begun_and_reset_are_not_all_kept(server: Server) -> None:
    # Several times as many as may be open at once; each would take ten kilobytes.
    many = (
        h2.headers_frame(stream, INFER) + h2.reset_frame(stream) for stream in range(1, 60_000, 2)
    )

    with h2.Connection(server.grpc_port) as connection:
        connection.send(b"".join(many))
        be_served(server)


def test_nobody_is_refused_in_a_burst_of_calls(server: Server) -> None:
    # More than grpc by itself would let wait.
    request = _request(inputs=[_INPUT], raw_input_contents=[bytes(4)])

    async def ask() -> list[bytes]:
        async with grpc.aio.insecure_channel(server.grpc_address) as channel:
            infer = channel.unary_unary(INFER)
            return list(await asyncio.gather(*(infer(request, timeout=120) for _ in range(FLOOD))))

    assert 1 == len(set(asyncio.run(ask())))


# --------------------------------------------------------- what stays and waits


def test_streams_that_never_read_are_no_other_clients_trouble(server: Server) -> None:
    request = token_request(50)
    with ExitStack() as stack:
        for _ in range(5):
            connection = stack.enter_context(
                h2.Connection(server.grpc_port, h2.PREFACE + h2.NO_WINDOW)
            )
            for number in range(STREAMS // 5):
                stream = 2 * number + 1
                connection.send(h2.headers_frame(stream, STREAM), h2.data_frame(stream, request))

        be_served(server)
        with triton.InferenceServerClient(server.grpc_address) as client:
            assert client.is_server_live()


def test_streams_that_say_nothing_and_never_end_are_no_other_clients_trouble(
    server: Server,
) -> None:
    with h2.Connection(server.grpc_port) as connection:
        for number in range(STREAMS):
            connection.send(h2.headers_frame(2 * number + 1, (INFER, STREAM)[number % 2]))

        be_served(server)


def test_streams_that_are_cancelled_at_any_moment_leave_no_request(server: Server) -> None:
    cancel(server.grpc_address, 60, 0.02)

    eventually(lambda: unanswered_requests(server) == 0, 30, "nothing is unanswered")


@pytest.mark.parametrize("running", ["native"], indirect=True)
def test_thousands_of_requests_on_one_stream_are_all_answered(server: Server) -> None:
    right = _request(inputs=[_INPUT], raw_input_contents=[bytes(4)])
    answer = message("inference.ModelStreamInferResponse")

    with grpc.insecure_channel(server.grpc_address) as channel:
        answers = list(channel.stream_stream(STREAM)(iter([right] * 3000), timeout=120))

    assert 3000 == len(answers)
    assert "" == answer.FromString(answers[-1]).error_message


FIRST_BYTES = (
    b"",
    b"PRI",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00" + bytes(512),
    b"\xff" * 4096,
    h2.PREFACE + b"\xff\xff\xff" + bytes(6),
    h2.PREFACE + h2.settings_frame({}) + h2.frame(h2.DATA, 0, 0, b"x"),
    h2.PREFACE + h2.settings_frame({}) + h2.frame(h2.HEADERS, 4, 2, h2.header_block(INFER)),
    h2.PREFACE + h2.settings_frame({}) + h2.frame(h2.HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff"),
    h2.PREFACE + h2.settings_frame({}) + h2.frame(h2.WINDOW, 0, 0, bytes(4)),
    h2.PREFACE + h2.settings_frame({}) + h2.frame(h2.PING, 0, 0, b"short"),
    h2.PREFACE + h2.settings_frame({}) + h2.frame(0x77, 0xFF, 1, bytes(1000)),
)


def test_bytes_that_are_no_http2_are_no_other_clients_trouble(server: Server) -> None:
    for first in FIRST_BYTES:
        with h2.Connection(server.grpc_port, first):
            be_served(server)


# -------------------------------------------------------------------- messages


def _call(channel: grpc.Channel, path: str, data: bytes) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(path)(data, timeout=30)
    return caught.value.code().name, caught.value.details()


def _request(**fields: Any) -> bytes:
    named = {"model_name": "identity_fp32", **fields}
    return bytes(message("inference.ModelInferRequest")(**named).SerializeToString())


_INPUT = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}
MESSAGES = {
    "a raw content too many": _request(inputs=[_INPUT], raw_input_contents=[bytes(4)] * 2),
    "both kinds of contents": _request(
        inputs=[{**_INPUT, "contents": {"fp32_contents": [1.0]}}], raw_input_contents=[bytes(4)]
    ),
    "contents of another type": _request(inputs=[{**_INPUT, "contents": {"int64_contents": [1]}}]),
    "a version of letters": _request(
        inputs=[_INPUT], raw_input_contents=[bytes(4)], model_version="abc"
    ),
    "a version of 20 digits": _request(
        inputs=[_INPUT], raw_input_contents=[bytes(4)], model_version="9" * 20
    ),
    "a parameter without a value": _request(
        inputs=[_INPUT], raw_input_contents=[bytes(4)], parameters={"priority": {}}
    ),
    "half a message": _request(inputs=[_INPUT], raw_input_contents=[bytes(4)])[:-3],
    "a shape that overflows": _request(
        inputs=[{**_INPUT, "shape": [1 << 62, 1 << 62]}], raw_input_contents=[bytes(4)]
    ),
    "a shape below zero": _request(
        inputs=[{**_INPUT, "shape": [-1]}], raw_input_contents=[bytes(4)]
    ),
}


@pytest.mark.parametrize("running", ["native"], indirect=True)  # the handlers are the same
def test_a_message_that_contradicts_itself_is_refused(server: Server) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        for name, request in MESSAGES.items():
            code, text = _call(channel, INFER, request)

            assert ("INVALID_ARGUMENT", name) == (code, text and name)


def test_ten_thousand_parameters_are_read(server: Server) -> None:
    many = {f"key{number}": {"int64_param": number} for number in range(10_000)}
    request = _request(inputs=[_INPUT], raw_input_contents=[bytes(4)], parameters=many)

    with grpc.insecure_channel(server.grpc_address) as channel:
        answer = channel.unary_unary(INFER)(request, timeout=30)

    assert (
        bytes(4)
        == message("inference.ModelInferResponse").FromString(answer).raw_output_contents[0]
    )


@pytest.mark.parametrize("running", ["native"], indirect=True)  # the handlers are the same
def test_a_stream_outlives_messages_that_are_refused(server: Server) -> None:
    right = _request(inputs=[_INPUT], raw_input_contents=[bytes(4)])
    answer = message("inference.ModelStreamInferResponse")

    with grpc.insecure_channel(server.grpc_address) as channel:
        requests = iter([*MESSAGES.values(), right])
        answers = list(channel.stream_stream(STREAM)(requests, timeout=30))

    texts = [answer.FromString(data).error_message for data in answers]
    assert [True] * len(MESSAGES) + [False] == list(map(bool, texts))


@pytest.mark.row("D14")
def test_nothing_describes_the_server_unless_it_is_asked_to(server: Server) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        for path in (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "/grpc.channelz.v1.Channelz/GetServers",
        ):
            assert "UNIMPLEMENTED" == _call(channel, path, b"")[0]
