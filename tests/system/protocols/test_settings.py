"""Log and trace settings of a real server, changed by clients over both protocols, and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.standard.ctl.system.commands import ctl
from tests.support.clients import infer_inputs, infer_message, open_client
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_protos import message

_LOG = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
_TRACE = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("talker", "identity_fp32"),
        options=(
            "--http-workers=2",
            "--runtime-directory=@DIRECTORY@/run",
            "--grpc-infer-response-compression-level=low",
        ),
        frontends=("grpc",),
    ),
]


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """As it was started, and so again afterwards."""
    yield running
    running.request_json("/v2/logging", {k: v for k, v in _LOG.items() if k != "log_file"})
    running.request_json(
        "/v2/trace/setting", dict.fromkeys(("trace_rate", "trace_count", "trace_level"))
    )
    running.request_json("/v2/models/talker/trace/setting", {"trace_rate": None})


@pytest.fixture
def rpc(server: Server) -> Iterator[Any]:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        yield client


def talk(server: Server, word: str) -> list[str]:
    """Return what the model's Logger has written of this word, once the last line is there."""
    with open_client(server, "http") as client:
        # The second one is said at every level, so that the first is through.
        words = np.array([[word.encode(), b"end"]], dtype=np.object_)
        client.infer("talker", infer_inputs(http_client, INPUT0=words))
    return re.findall(rf'"(\w+) {word}"', server.log_text())


@pytest.mark.row("C15", "C97", "I16")
def test_log_settings_are_read_and_changed_one_by_one_over_http(server: Server) -> None:
    assert (200, _LOG) == server.request_json("/v2/logging")

    changed = {**_LOG, "log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"}
    for key in ("log_info", "log_verbose_level", "log_format"):
        status, settings = server.request_json(
            "/v2/logging", {key: changed[key], "log_error": None}
        )
        assert (200, changed[key]) == (status, settings[key])

    # Whichever process answers: the state is one.
    assert [(200, changed)] * 8 == [server.request_json("/v2/logging") for _ in range(8)]
    assert (200, changed) == server.request_json("/v2/logging", {"unknown": 1})


@pytest.mark.row("D12", "I16")
def test_log_settings_are_the_same_over_grpc(server: Server, rpc: Any) -> None:
    shown = rpc.get_log_settings(as_json=True)["settings"]
    assert {"bool_param": True} == shown["log_info"]
    assert {"string_param": "default"} == shown["log_format"]
    assert set(_LOG) == set(shown)

    rpc.update_log_settings({"log_warning": False, "log_verbose_level": 3, "log_format": "ISO8601"})

    changed = {**_LOG, "log_warning": False, "log_verbose_level": 3, "log_format": "ISO8601"}
    assert (200, changed) == server.request_json("/v2/logging")


@pytest.mark.row("C97", "D12")
def test_a_wrong_log_setting_changes_nothing(server: Server, rpc: Any) -> None:
    status, _ = server.request_json("/v2/logging", {"log_info": False, "log_file": "/tmp/x"})
    with pytest.raises(InferenceServerException) as raised:
        rpc.update_log_settings({"log_verbose_level": 3, "log_format": "x"}, client_timeout=20)

    assert (501, "StatusCode.INVALID_ARGUMENT") == (status, raised.value.status())
    assert (200, _LOG) == server.request_json("/v2/logging")


@pytest.mark.row("A90", "I16", "--log-warning")
def test_what_models_log_follows_the_settings(server: Server) -> None:
    server.request_json("/v2/logging", {"log_info": False, "log_verbose_level": 1})
    eventually(lambda: "info" not in talk(server, "muted"), 60)
    muted = talk(server, "quiet")

    server.request_json(
        "/v2/logging", {"log_info": True, "log_error": False, "log_verbose_level": 0}
    )
    eventually(lambda: "error" not in talk(server, "changed"), 60)
    changed = talk(server, "loud")

    def of(word: str) -> list[str]:
        return re.findall(rf'"(\w+) {word}"', server.log_text())

    eventually(lambda: of("loud")[-1:] == ["warning"], 60, "the log has it all")
    assert (["verbose", "warning", "error"], ["info", "warning"]) == (of("quiet"), of("loud"))
    assert {*muted} <= {"verbose", "warning", "error"}
    assert {*changed} <= {"info", "warning"}


@pytest.mark.row("I02", "--log-format")
def test_the_form_of_lines_changes_at_once(server: Server) -> None:
    server.request_json("/v2/logging", {"log_format": "ISO8601"})

    talk(server, "stamped")

    def is_stamped() -> bool:
        form = r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ model\.py:\d+\] "info stamped"$'
        return re.search(form, server.log_text(), re.MULTILINE) is not None

    eventually(is_stamped, 60)


@pytest.mark.row("I16")
def test_log_settings_are_shown_and_changed_by_the_command(server: Server) -> None:
    shown = ctl(server, "log-settings")
    changed = ctl(server, "log-settings", "--no-info", "--verbose=2", "--format=ISO8601")

    assert "log_info true" in shown.output.splitlines()
    words = {"log_info false", "log_verbose_level 2", "log_format ISO8601", "log_error true"}
    assert words <= set(changed.output.splitlines())
    assert {
        **_LOG,
        "log_info": False,
        "log_verbose_level": 2,
        "log_format": "ISO8601",
    } == server.request_json("/v2/logging")[1]


@pytest.mark.row("C14", "C96")
def test_trace_settings_of_a_model_stand_over_those_of_all(server: Server) -> None:
    all_models, one = "/v2/trace/setting", "/v2/models/talker/trace/setting"
    assert (200, _TRACE) == server.request_json(all_models)

    server.request_json(one, {"trace_rate": "77"})
    assert (200, {**_TRACE, "trace_rate": "88", "trace_count": "9"}) == server.request_json(
        all_models, {"trace_rate": "88", "trace_count": "9"}
    )

    assert (200, {**_TRACE, "trace_rate": "77", "trace_count": "9"}) == server.request_json(one)
    assert "88" == server.request_json(one, {"trace_rate": None})[1]["trace_rate"]
    server.request_json(all_models, {"trace_rate": None, "trace_count": None})
    assert [(200, _TRACE)] * 4 == [server.request_json(one) for _ in range(4)]


@pytest.mark.row("C96")
def test_a_wrong_trace_setting_changes_nothing(server: Server) -> None:
    document = {"trace_count": "5", "trace_level": ["TIMESTAMPS"]}

    status, settings = server.request_json("/v2/trace/setting", document)

    text = "Attempting to set invalid trace setting :trace file name is not given"
    assert (400, text) == (status, settings["error"][: len(text)])
    assert (200, _TRACE) == server.request_json("/v2/trace/setting")


@pytest.mark.row("D11")
def test_trace_settings_are_the_same_over_grpc(server: Server, rpc: Any) -> None:
    rpc.update_trace_settings("talker", {"trace_rate": "5"})

    values = {"trace_rate": ["5"], "trace_level": ["OFF"]}
    settings = rpc.get_trace_settings("talker").settings
    assert values == {key: list(settings[key].value) for key in values}
    assert "5" == server.request_json("/v2/models/talker/trace/setting")[1]["trace_rate"]
    rpc.update_trace_settings("talker", {"trace_rate": None})
    assert (200, _TRACE) == server.request_json("/v2/models/talker/trace/setting")


# ------------------------------------------------------------------- options of gRPC


@pytest.mark.row("D14")
def test_the_services_of_a_server_can_be_listed(server: Server) -> None:
    request = message("grpc.reflection.v1.ServerReflectionRequest")(list_services="")
    with grpc.insecure_channel(server.grpc_address) as channel:
        path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
        answers = channel.stream_stream(path)(iter([request.SerializeToString()]), timeout=30)
        answer = message("grpc.reflection.v1.ServerReflectionResponse").FromString(next(answers))

    names = [service.name for service in answer.list_services_response.service]
    assert "inference.GRPCInferenceService" in names


@pytest.mark.row("D44", "--grpc-infer-response-compression-level")
def test_the_answers_of_a_server_are_compressed(server: Server) -> None:
    request = infer_message("identity_fp32", INPUT0=np.zeros(1000, np.float32))
    # The client hands over what travelled.
    options = [("grpc.per_message_decompression", 0)]
    with grpc.insecure_channel(server.grpc_address, options=options) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        answer = infer(request, timeout=30)

    assert answer.startswith(b"\x1f\x8b")
    assert len(answer) < 4000
