from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.frontends.fake_gateway import echo, failing, version_info
from tests.frontends.grpc_api.fake_gateway import FakeGateway
from tests.frontends.grpc_api.serving import GrpcServerThread
from tests.support import raw_http2 as h2
from tests.support.waiting import eventually
from zmqtriton_floor import errors
from zmqtriton_frontends.grpc_api.transport.lifecycle import details_of
from zmqtriton_protos import message

pytestmark = [pytest.mark.usefixtures("each_transport"), pytest.mark.slow]


@pytest.fixture
def gateway(tmp_path: Path) -> FakeGateway:
    return FakeGateway(
        version_info("m"),
        version_info("stream", decoupled=True),
        settings={"runtime_directory": str(tmp_path)},
    )


@pytest.fixture
def client(server: GrpcServerThread) -> Iterator[Any]:
    with triton.InferenceServerClient(server.address) as connected:
        yield connected


def numbers(count: int) -> tuple[Any, Any]:
    """An input of the model m, and its values."""
    values = np.arange(count, dtype=np.float32)
    tensor = triton.InferInput("INPUT0", [count], "FP32")
    tensor.set_data_from_numpy(values)
    return tensor, values


# -------------------------------------------------------------- what clients do


def test_the_sync_client_can_do_everything_that_is_offered(
    server: GrpcServerThread, client: Any
) -> None:
    server.gateway.control_results["index"] = [{"name": "m", "version": "1", "state": "READY"}]
    server.gateway.counters = {"model_stats": [{"name": "m", "version": "1", "inference_count": 3}]}

    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("m", "1")
    assert client.get_server_metadata().name == "triton"
    assert client.get_model_metadata("m").inputs[0].datatype == "FP32"
    assert client.get_model_config("m").config.backend == "python"
    assert client.get_inference_statistics("m").model_stats[0].inference_count == 3
    assert client.get_model_repository_index(as_json=True)["models"][0]["state"] == "READY"
    client.load_model("m", config="{}", files={"file:1/model.py": b"pass"})
    client.unload_model("m", unload_dependents=True)


def test_an_inference_with_raw_data_comes_back(client: Any) -> None:
    tensor, values = numbers(5)
    output = triton.InferRequestedOutput("OUTPUT0")

    result = client.infer("m", [tensor], outputs=[output], request_id="one", parameters={"k": 1})

    assert result.as_numpy("OUTPUT0").tolist() == values.tolist()
    assert (result.get_response().id, result.get_response().model_version) == ("one", "1")


def test_sixteen_megabytes_come_back(client: Any) -> None:
    tensor, values = numbers(4 << 20)

    result = client.infer("m", [tensor], client_timeout=60)

    assert np.array_equal(result.as_numpy("OUTPUT0"), values)


# --------------------------------------------------------------------- errors


def test_metadata_that_are_no_text_are_nothing_to_the_log(
    server: GrpcServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    odd = b"\x00\x05x-odd\x04caf\xe9"
    block = h2.header_block("/inference.GRPCInferenceService/ServerMetadata") + odd
    with server.connect() as connection:
        connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block))
        connection.send(h2.data_frame(1, b"", flags=h2.END_STREAM))

        assert b"triton" in connection.read_until(b"grpc-status")

    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.row("D40")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UnknownError, grpc.StatusCode.UNKNOWN),
        (errors.InternalError, grpc.StatusCode.INTERNAL),
        (errors.NotFound, grpc.StatusCode.NOT_FOUND),
        (errors.InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
        (errors.Unsupported, grpc.StatusCode.UNIMPLEMENTED),
        (errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
        (errors.Cancelled, grpc.StatusCode.CANCELLED),
    ],
)
def test_every_error_has_its_status_and_keeps_its_text(
    server: GrpcServerThread,
    client: Any,
    error: type[errors.ZmqTritonError],
    status: grpc.StatusCode,
) -> None:
    text = '100% "why"\nünï'

    server.gateway.respond = failing(error(text))

    with pytest.raises(InferenceServerException) as caught:
        client.infer("m", [numbers(1)[0]])

    assert (caught.value.status(), caught.value.message()) == (f"{status}", text)


def test_a_mistake_in_the_server_is_an_answer_without_its_details(
    server: GrpcServerThread, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.gateway.respond = failing(ZeroDivisionError("a secret"))

    with pytest.raises(InferenceServerException, match="INTERNAL") as caught:
        client.infer("m", [numbers(1)[0]])

    assert "secret" not in str(caught.value)
    assert "ModelInfer failed" in caplog.text
    assert "a secret" in caplog.text
    server.gateway.respond = echo
    client.infer("m", [numbers(1)[0]])


def test_a_long_error_is_cut_rather_than_lost(server: GrpcServerThread, client: Any) -> None:
    server.gateway.respond = failing(errors.InternalError("é\n" * 60_000))

    with pytest.raises(InferenceServerException, match="INTERNAL") as caught:
        client.infer("m", [numbers(1)[0]])

    assert "é\né\n" in str(caught.value)
    assert str(caught.value).endswith(" [...]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("x" * 6000, "x" * 6000),
        ("x" * 6001, "x" * 6000 + " [...]"),
        ("%" * 2001, "%" * 2000 + " [...]"),
        ("é" * 1000, "é" * 1000),
        ("é" * 1001, "é" * 1000 + " [...]"),
    ],
)
def test_details_are_cut_by_what_they_take_on_the_wire(text: str, expected: str) -> None:
    assert details_of(text) == expected


@pytest.mark.parametrize(
    ("path", "data", "status", "text"),
    [
        (
            "inference.GRPCInferenceService/ModelInfer",
            b"\xff\xff",
            grpc.StatusCode.INVALID_ARGUMENT,
            "failed to parse the request as inference.ModelInferRequest",
        ),
        (
            "inference.GRPCInferenceService/ModelInfer",
            message("inference.ModelInferRequest")(model_name="stream").SerializeToString(),
            grpc.StatusCode.UNIMPLEMENTED,
            "ModelInfer RPC doesn't support models with decoupled transaction policy. "
            "Use ModelStreamInfer",
        ),
        (
            "grpc.health.v1.Health/Watch",
            b"\xff",
            grpc.StatusCode.INVALID_ARGUMENT,
            "failed to parse the request as grpc.health.v1.HealthCheckRequest",
        ),
        (
            "grpc.channelz.v1.Channelz/GetServers",
            b"",
            grpc.StatusCode.UNIMPLEMENTED,
            {"grpcio": "Method not found!", "native": ""},
        ),
    ],
)
def test_bytes_that_no_client_library_sends_get_a_status(
    *,
    server: GrpcServerThread,
    path: str,
    data: bytes,
    status: grpc.StatusCode,
    text: str | dict[str, str],
    each_transport: str,
) -> None:
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        next(channel.unary_stream(f"/{path}")(data, timeout=10))

    expected = text if isinstance(text, str) else text[each_transport]
    assert (caught.value.code(), caught.value.details()) == (status, expected)


# ----------------------------------------------------------- deadlines and cancelling


def test_the_time_that_a_client_waits_is_the_requests_deadline(
    server: GrpcServerThread, client: Any
) -> None:
    before = time.monotonic_ns()
    client.infer("m", [numbers(1)[0]], client_timeout=100)
    client.infer("m", [numbers(1)[0]])

    limited, unlimited = (r.options.deadline_ns for r in server.gateway.requests)
    # gRPC's clients round what they send up to three digits.
    assert before + 99e9 < limited < time.monotonic_ns() + 102e9
    assert unlimited == 0


def test_a_client_that_stops_waiting_has_its_request_cancelled(
    server: GrpcServerThread, client: Any
) -> None:
    server.hold()

    def is_cancelled() -> bool:
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            client.infer("m", [numbers(1)[0]], client_timeout=0.2)
        return server.gateway.cancelled > 0

    # It may stop waiting before the server has heard of it.
    eventually(is_cancelled, within_s=60)


@pytest.mark.row("D36")
@pytest.mark.parametrize("way", ["cancels", "vanishes"])
def test_a_client_that_cancels_or_vanishes_has_its_request_cancelled(
    server: GrpcServerThread, client: Any, way: str
) -> None:
    server.hold()
    call = client.async_infer("m", [numbers(1)[0]], callback=lambda result, error: None)
    eventually(lambda: server.gateway.requests, within_s=30)

    {"cancels": call.cancel, "vanishes": client.close}[way]()

    eventually(lambda: server.gateway.cancelled == 1, within_s=30)


# -------------------------------------------------------------------- stopping


def begin_infer(server: GrpcServerThread, client: Any) -> list[Any]:
    """Have a request be under way; return the list that gets its result or error."""
    answers: list[Any] = []
    client.async_infer(
        "m", [numbers(2)[0]], callback=lambda result, error: answers.append(result or error)
    )
    eventually(lambda: server.gateway.requests, within_s=30)
    return answers


@pytest.mark.row("D46")
def test_stopping_finishes_what_is_under_way_and_sends_clients_away(
    server: GrpcServerThread, client: Any
) -> None:
    release = server.hold()
    answers = begin_infer(server, client)

    stopped = server.begin_stop(within_s=600)
    eventually(lambda: is_unavailable(client), within_s=30)
    assert not answers
    release()
    stopped()

    eventually(lambda: answers, within_s=30)
    assert answers[0].as_numpy("OUTPUT0").tolist() == [0.0, 1.0]
    assert is_unavailable(client)


def is_unavailable(client: Any) -> bool:
    """Return whether nobody listens; grpc itself cancels what comes before its clients hear.

    Or has it wait until the server has ended.
    """
    try:
        client.is_server_live(client_timeout=5)
    except InferenceServerException as error:
        return error.status() == "StatusCode.UNAVAILABLE"
    return False


@pytest.mark.row("D46")
def test_stopping_breaks_off_what_takes_too_long(server: GrpcServerThread, client: Any) -> None:
    server.hold()
    answers = begin_infer(server, client)

    server.begin_stop(within_s=0.05)()

    eventually(lambda: answers, within_s=30)
    eventually(lambda: server.gateway.cancelled == 1, within_s=30)


# ------------------------------------------------------------------------ health


def test_a_watch_pushes_changes_and_ends_with_the_server(server: GrpcServerThread) -> None:
    kind = message("grpc.health.v1.HealthCheckResponse")
    with grpc.insecure_channel(server.address) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch", response_deserializer=kind.FromString
        )
        statuses = watch(b"", timeout=20)
        assert next(statuses).status == 1

        server.run_function(
            lambda: server.gateway.catalogue.update(version_info("m", ready_instances=0))
        )
        assert next(statuses).status == 2
        server.run_function(lambda: server.gateway.catalogue.update(version_info("m")))
        assert next(statuses).status == 1

        server.begin_stop(within_s=10)()
        assert [response.status for response in statuses] == [2]
        assert statuses.code() is grpc.StatusCode.OK


# ---------------------------------------------------------------- channel arguments
