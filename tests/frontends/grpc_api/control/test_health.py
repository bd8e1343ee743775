"""Health, reflection, and how messages of control are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import FakeCall, FakeGateway, InMemoryTransport
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import InvalidArgument, NotFound
from zmqtriton_frontends.grpc_api.control import metadata as module
from zmqtriton_frontends.grpc_api.control.metadata import Health
from zmqtriton_frontends.grpc_api.control.reading import MAX_BYTES, MAX_FIELDS, read, read_load
from zmqtriton_frontends.grpc_api.inference import gradual_parsing
from zmqtriton_frontends.grpc_api.inference.response import field
from zmqtriton_protos import message

# ------------------------------------------------------------------------------ health


REQUEST = message("grpc.health.v1.HealthCheckRequest")


RESPONSE = message("grpc.health.v1.HealthCheckResponse")


SERVING, NOT_SERVING = 1, 2


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)


def ask(gateway: FakeGateway, method: str, **fields: Any) -> Any:
    request = message(f"inference.{method}Request")(**fields)
    return InMemoryTransport(gateway).call_unary(method, request)


def check(gateway: FakeGateway, service: str = "") -> int:
    answer = InMemoryTransport(gateway).call_unary_async(
        "Check", REQUEST(service=service), service="grpc.health.v1.Health"
    )
    return int(asyncio.run(answer).status)


@pytest.mark.row("D01", "D13")
def test_a_server_with_a_dead_model_is_live_and_not_ready() -> None:
    gateway = FakeGateway(version_info("m", ready_instances=0), version_info("n"))

    assert ask(gateway, "ServerLive").live
    assert not ask(gateway, "ServerReady").ready
    assert check(gateway, service="n") == NOT_SERVING


@pytest.mark.row("D13")
def test_whichever_service_is_asked_for_the_server_answers() -> None:
    assert check(FakeGateway(version_info("m")), service="nobody") == SERVING


def test_a_model_is_ready_while_an_instance_could_execute() -> None:
    gateway = FakeGateway(version_info("m"), version_info("dead", ready_instances=0))

    assert ask(gateway, "ModelReady", name="m").ready
    assert ask(gateway, "ModelReady", name="m", version="1").ready
    assert not ask(gateway, "ModelReady", name="dead").ready


def test_readiness_of_what_is_unknown_is_an_error(gateway: FakeGateway) -> None:
    with pytest.raises(InvalidArgument, match="'x' is not found"):
        ask(gateway, "ModelReady", name="x")
    with pytest.raises(NotFound, match="'m' version 2 is not found"):
        ask(gateway, "ModelReady", name="m", version="2")


# ------------------------------------------------------------------------- watches
class Watcher:
    """A client of Watch; `next()` is the next status it is told."""

    def __init__(self, health: Health) -> None:
        self._stream: AsyncIterator[bytes] = health.watch(self._ask(), FakeCall())

    async def _ask(self) -> AsyncIterator[bytes]:
        yield b""

    async def next(self) -> int:
        data = await asyncio.wait_for(self._stream.__anext__(), 10)
        return int(RESPONSE.FromString(data).status)

    async def leave(self) -> None:
        waiting = asyncio.ensure_future(self.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})


@pytest.mark.row("A28")
@scenario(asyncio.run)
async def test_a_watcher_is_told_what_models_say_of_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ASK_S", 0.001)
    gateway = FakeGateway(version_info("m", has_is_ready=1), version_info("n"))
    watcher = Watcher(Health(gateway))
    for is_ready, status in ((False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)):
        gateway.control_result = is_ready
        assert await watcher.next() == status
    await watcher.leave()
    assert [("is_ready", {"generations": [1]})] == gateway.calls[:1]


@scenario(asyncio.run)
async def test_a_watch_goes_on_while_sequences_do(gateway: FakeGateway) -> None:
    watcher = Watcher(Health(gateway))
    assert await watcher.next() == SERVING

    gateway.is_stopping = True

    assert await watcher.next() == NOT_SERVING
    ending = asyncio.ensure_future(watcher.next())
    await asyncio.sleep(0)
    assert not ending.done()
    gateway.is_ending = True
    with pytest.raises(StopAsyncIteration):
        await ending


@scenario(asyncio.run)
async def test_one_watcher_that_leaves_takes_nothing_from_the_others(gateway: FakeGateway) -> None:
    health = Health(gateway)
    leaving, staying = Watcher(health), Watcher(health)
    assert [await leaving.next(), await staying.next()] == [SERVING, SERVING]
    waiting = asyncio.ensure_future(staying.next())

    await leaving.leave()
    gateway.catalogue.update(version_info("m", ready_instances=0))

    assert await waiting == NOT_SERVING


@scenario(asyncio.run)
async def test_a_watcher_that_came_during_a_short_change_is_not_left_with_it(
    gateway: FakeGateway,
) -> None:
    health = Health(gateway)
    first, second = Watcher(health), Watcher(health)
    assert await first.next() == SERVING
    waiting = asyncio.ensure_future(first.next())
    await asyncio.sleep(0)

    # Unready and ready again between two looks, and the second watcher came in between.
    gateway.catalogue.update(version_info("m", ready_instances=0))
    assert await second.next() == NOT_SERVING
    next_of_second = asyncio.ensure_future(second.next())
    await asyncio.sleep(0)
    gateway.catalogue.update(version_info("m"))

    assert await next_of_second == SERVING
    waiting.cancel()


@scenario(asyncio.run)
async def test_without_watchers_nobody_looks(gateway: FakeGateway) -> None:
    looks = 0

    def is_ready() -> bool:
        nonlocal looks
        looks += 1
        return True

    gateway.catalogue.is_ready = is_ready  # type: ignore[method-assign]
    watcher = Watcher(Health(gateway))
    await watcher.next()
    await watcher.leave()
    await asyncio.sleep(0.005)
    after_leaving = looks

    await asyncio.sleep(0.005)

    assert looks == after_leaving


# ----------------------------------------------------------------------------- reading
# Messages of RPCs that control the server: bounded, or read in turns.


LOAD = message("inference.RepositoryModelLoadRequest")


#: An entry of a map without a key.
ENTRY = b"\x1a\x00"


def load_of(data: bytes) -> tuple[Any, dict[str, memoryview], int]:
    """Return what is read of a load, and how often others had their turns."""
    call = FakeCall()
    request, files = asyncio.run(read_load(data, call))
    return request, files, call.turns


def written(**files: int) -> tuple[Any, bytes]:
    load: Any = LOAD(model_name="m")
    load.parameters["config"].string_param = "{}"
    for name, size in files.items():
        load.parameters[f"file:{name}"].bytes_param = bytes([size % 251]) * size
    return load, load.SerializeToString()


@pytest.mark.parametrize("sizes", [(5,), (70_000,), (3_000_000, 0, 17_000, 100, 1 << 20)])
def test_a_load_is_read_whole_and_its_large_files_are_not_copied(sizes: tuple[int, ...]) -> None:
    load, data = written(**{f"f{number}": size for number, size in enumerate(sizes)})

    request, files, _ = load_of(data)

    assert all(file.obj is data for file in files.values())
    assert {f"file:f{n}" for n, size in enumerate(sizes) if size > 16_384} >= set(files)
    for name, content in files.items():
        request.parameters[name].bytes_param = bytes(content)
    assert load == request


_KEY = field(b"\x0a", b"file:a")
_CONTENT, _OTHER_CONTENT = (field(b"\x22", letter * 70_000) for letter in (b"x", b"y"))
_TEXT = field(b"\x1a", b"z" * 70_000)


@pytest.mark.parametrize(
    "entry",
    [
        _KEY + field(b"\x12", _TEXT),
        _KEY + field(b"\x12", _CONTENT + _OTHER_CONTENT),
        _KEY + field(b"\x12", _CONTENT) + field(b"\x12", _OTHER_CONTENT),
        _KEY + field(b"\x1a", _CONTENT),
    ],
    ids=["a text", "two contents", "two values", "no value"],
)
def test_what_is_no_file_but_in_name_means_what_protobuf_makes_of_it(entry: bytes) -> None:
    data = field(b"\x1a", entry)

    assert (LOAD.FromString(data), {}) == load_of(data)[:2]


@pytest.mark.slow
def test_others_have_turns_while_a_load_of_many_files_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradual_parsing, "_TURN_S", 0.0)
    load, data = written(**{f"f{number}": 200 for number in range(4000)})

    request, files, turns = load_of(data)

    assert load == request
    assert not files
    assert turns >= len(data) // 16_384 // 2


@pytest.mark.parametrize(
    "data",
    [
        ENTRY * (MAX_FIELDS + 1) + bytes((0x0A, 3)) + b"x" * 3 + ENTRY * MAX_BYTES,
        LOAD(model_name="m" * (2 << 20)).SerializeToString(),
        LOAD(parameters={"config": {"string_param": "x" * (2 << 20)}}).SerializeToString(),
        LOAD(parameters={"else": {"bytes_param": b"x" * (2 << 20)}}).SerializeToString(),
    ],
    ids=["many fields", "a long name", "a long config", "no file"],
)
def test_what_would_take_long_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="a load"):
        load_of(data)


@pytest.mark.parametrize("cut", [1, 1000, 2_999_000])
def test_a_load_that_is_cut_off_is_malformed(cut: int) -> None:
    _, data = written(f=3_000_000)

    with pytest.raises(InvalidArgument, match="RepositoryModelLoadRequest"):
        load_of(data[:-cut])


@pytest.mark.parametrize("name", ["LogSettings", "TraceSetting", "RepositoryIndex"])
def test_what_controls_the_server_is_short(name: str) -> None:
    kind = message(f"inference.{name}Request")
    assert read(kind, b"") == kind()

    with pytest.raises(InvalidArgument, match=f"{name}Request has at most 65536 bytes, not 65538"):
        read(kind, ENTRY * (MAX_BYTES // 2 + 1))


# -------------------------------------------------------------------------- reflection
# Reflection, asked as grpcurl asks: services first, then files until all is known.


_ON = {"grpc_reflection": True}


_REQUEST = message("grpc.reflection.v1.ServerReflectionRequest")


_RESPONSE = message("grpc.reflection.v1.ServerReflectionResponse")


_PATH = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def server() -> Iterator[GrpcServerThread]:
    with serving(FakeGateway(settings=_ON)) as running:
        yield running


def ask_reflection(
    server: GrpcServerThread, *questions: dict[str, Any], version: str = "v1"
) -> list[Any]:
    requests = [_REQUEST(**question).SerializeToString() for question in questions]
    with grpc.insecure_channel(server.address) as channel:
        answers = channel.stream_stream(_PATH.format(version))(iter(requests), timeout=20)
        return [_RESPONSE.FromString(answer) for answer in answers]


@pytest.mark.row("D14")
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_the_services_are_listed(server: GrpcServerThread, version: str) -> None:
    (answer,) = ask_reflection(server, {"host": "h", "list_services": "*"}, version=version)

    assert ("h", "*") == (answer.valid_host, answer.original_request.list_services)
    assert [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "inference.GRPCInferenceService",
    ] == [service.name for service in answer.list_services_response.service]


@pytest.mark.row("D14")
@pytest.mark.parametrize(
    "question",
    [
        {"file_containing_symbol": "inference.GRPCInferenceService"},
        {"file_containing_symbol": "inference.ModelInferRequest"},
        {"file_by_filename": "grpc_service.proto"},
    ],
)
def test_what_is_told_is_enough_to_make_a_request(
    server: GrpcServerThread, question: dict[str, str]
) -> None:
    (answer,) = ask_reflection(server, question)

    pool = descriptor_pool.DescriptorPool()
    for data in reversed(answer.file_descriptor_response.file_descriptor_proto):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    infer = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name["ModelInfer"]
    assert "model_name" in infer.input_type.fields_by_name


@pytest.mark.row("D14")
def test_what_is_unknown_is_an_error_and_the_stream_goes_on(server: GrpcServerThread) -> None:
    answers = ask_reflection(
        server,
        {"file_containing_symbol": "nobody.Nothing"},
        {"file_by_filename": "none.proto"},
        {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
        {},
        {"list_services": ""},
    )

    assert [
        (5, "'nobody.Nothing' is not found"),
        (5, "'none.proto' is not found"),
        (5, "there are no extensions"),
        (12, "unknown kind of question"),
        (0, ""),
    ] == [(a.error_response.error_code, a.error_response.error_message) for a in answers]


@pytest.mark.row("D14")
def test_where_it_is_off_the_error_names_the_option() -> None:
    with serving(FakeGateway()) as server, pytest.raises(grpc.RpcError) as caught:
        ask_reflection(server, {"list_services": ""})

    assert grpc.StatusCode.UNIMPLEMENTED == caught.value.code()
    assert "--grpc-reflection=true" in caught.value.details()


def test_a_message_that_is_none_ends_the_stream(server: GrpcServerThread) -> None:
    with (
        grpc.insecure_channel(server.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        list(channel.stream_stream(_PATH.format("v1"))(iter([b"\xff"]), timeout=20))

    assert grpc.StatusCode.INVALID_ARGUMENT == caught.value.code()


def test_a_server_that_stops_does_not_wait_for_who_might_ask_more() -> None:
    over = threading.Event()

    def questions() -> Iterator[bytes]:
        yield _REQUEST(list_services="").SerializeToString()
        over.wait(60)

    with (
        serving(FakeGateway(settings=_ON)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        answers = channel.stream_stream(_PATH.format("v1"))(questions(), timeout=60)
        next(answers)

        server.begin_stop(60)()

        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        over.set()
    assert grpc.StatusCode.UNAVAILABLE == caught.value.code()
