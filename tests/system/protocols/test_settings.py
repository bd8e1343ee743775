"""Log and trace settings of a real server, changed by clients over both protocols."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from click.testing import CliRunner
from tritonclient.grpc import service_pb2

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.ctl.main import cli

pytestmark = pytest.mark.system

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


FRONTENDS = ("grpc",)
MODELS = ("talker",)
OPTIONS = ("--http-workers=2", "--runtime-directory=@DIRECTORY@/run")


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """As it was started, and so again afterwards."""
    yield running
    post(running, "/v2/logging", {k: v for k, v in _LOG.items() if k != "log_file"})
    post(running, "/v2/trace/setting", dict.fromkeys(("trace_rate", "trace_count", "trace_level")))
    post(running, "/v2/models/talker/trace/setting", {"trace_rate": None})


@pytest.fixture
def rpc(server: Server) -> Iterator[Any]:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        yield client


def post(server: Server, path: str, document: Any) -> tuple[int, Any]:
    body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
    return ask(server, path, body)


def ask(server: Server, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """The status and the document of a GET, or with a body of a POST."""
    try:
        with urllib.request.urlopen(f"{server.url}{path}", body, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def talk(server: Server, word: str) -> list[str]:
    """Return what the model's Logger has written of this word, once the last line is there."""
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        tensor = http_client.InferInput("INPUT0", [1, 2], "BYTES")
        # The second one is said at every level, so that the first is through.
        tensor.set_data_from_numpy(np.array([[word.encode(), b"end"]], dtype=np.object_))
        client.infer("talker", [tensor])
    return re.findall(rf'"(\w+) {word}"', server.log_text())


@pytest.mark.row("C15", "C97", "I16")
def test_log_settings_are_read_and_changed_one_by_one_over_http(server: Server) -> None:
    assert (200, _LOG) == ask(server, "/v2/logging")

    changed = {**_LOG, "log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"}
    for key in ("log_info", "log_verbose_level", "log_format"):
        status, settings = post(server, "/v2/logging", {key: changed[key], "log_error": None})
        assert (200, changed[key]) == (status, settings[key])

    # Whichever process answers: the state is one.
    assert [(200, changed)] * 8 == [ask(server, "/v2/logging") for _ in range(8)]
    assert (200, changed) == post(server, "/v2/logging", {"unknown": 1})


@pytest.mark.row("D12", "I16")
def test_log_settings_are_the_same_over_grpc(server: Server, rpc: Any) -> None:
    shown = rpc.get_log_settings(as_json=True)["settings"]
    assert {"bool_param": True} == shown["log_info"]
    assert {"string_param": "default"} == shown["log_format"]
    assert set(_LOG) == set(shown)

    rpc.update_log_settings({"log_warning": False, "log_verbose_level": 3, "log_format": "ISO8601"})

    changed = {**_LOG, "log_warning": False, "log_verbose_level": 3, "log_format": "ISO8601"}
    assert (200, changed) == ask(server, "/v2/logging")


@pytest.mark.row("C97")
@pytest.mark.parametrize(
    ("document", "answer"),
    [
        (
            {"log_file": "/tmp/zmqtriton-never", "log_info": False},
            (501, "log file location can not be updated through network protocol"),
        ),
        ({"log_format": "x"}, (400, "invalid argument for --log_format, got: x")),
        ({"log_info": 1}, (400, "attempt to access JSON non-boolean as boolean")),
        (
            {"log_verbose_level": -1},
            (400, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ),
        ({"log_format": 1}, (400, "attempt to access JSON non-string as string")),
        ("", (400, "failed to parse the request JSON buffer: The document is empty. at 0")),
        (
            '{"log_info": ' + "[" * 101 + "]" * 101 + "}",
            (400, "JSON nesting depth exceeds maximum allowed limit (100)"),
        ),
    ],
)
def test_a_wrong_log_setting_over_http_changes_nothing(
    server: Server, document: Any, answer: tuple[int, str]
) -> None:
    status, settings = post(server, "/v2/logging", document)

    assert answer == (status, settings["error"][: len(answer[1])])
    assert (200, _LOG) == ask(server, "/v2/logging")


@pytest.mark.row("D12")
@pytest.mark.parametrize(
    ("key", "field", "value", "status", "text"),
    [
        ("log_info", "string_param", "x", "INVALID_ARGUMENT", "expect boolean for 'log_info'"),
        ("log_warning", "", None, "INVALID_ARGUMENT", "expect boolean for 'log_warning'"),
        ("log_error", "uint32_param", 1, "INVALID_ARGUMENT", "expect boolean for 'log_error'"),
        (
            *("log_verbose_level", "string_param", "1", "INVALID_ARGUMENT"),
            "expect int32 for 'log_verbose_level'",
        ),
        ("log_format", "bool_param", True, "INVALID_ARGUMENT", "expect string for 'log_format'"),
        (
            *("log_format", "string_param", "x", "INVALID_ARGUMENT"),
            "invalid argument for log_format, got: x",
        ),
        (
            *("log_file", "string_param", "/tmp/zmqtriton-never", "UNIMPLEMENTED"),
            "log file location can not be updated through network protocol",
        ),
    ],
)
def test_a_wrong_log_setting_over_grpc_changes_nothing(
    server: Server, rpc: Any, key: str, field: str, value: Any, status: str, text: str
) -> None:
    request = service_pb2.LogSettingsRequest()
    request.settings["log_verbose_level"].uint32_param = 3
    request.settings[key].Clear()
    if field:
        setattr(request.settings[key], field, value)

    with pytest.raises(grpc.RpcError) as raised:
        rpc._client_stub.LogSettings(request, timeout=20)

    assert (status, text) == (raised.value.code().name, raised.value.details())
    assert (200, _LOG) == ask(server, "/v2/logging")


@pytest.mark.row("A90", "I16", "--log-warning")
def test_what_models_log_follows_the_settings(server: Server) -> None:
    post(server, "/v2/logging", {"log_info": False, "log_verbose_level": 1})
    eventually(lambda: "info" not in talk(server, "muted"), 60)
    muted = talk(server, "quiet")

    post(server, "/v2/logging", {"log_info": True, "log_error": False, "log_verbose_level": 0})
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
    post(server, "/v2/logging", {"log_format": "ISO8601"})

    talk(server, "stamped")

    def is_stamped() -> bool:
        form = r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ model\.py:\d+\] "info stamped"$'
        return re.search(form, server.log_text(), re.MULTILINE) is not None

    eventually(is_stamped, 60)


@pytest.mark.row("I16")
def test_log_settings_are_shown_and_changed_by_the_command(server: Server) -> None:
    arguments = ["--runtime-directory", str(server.directory.parent / "run"), "log-settings"]

    shown = CliRunner().invoke(cli, arguments)
    changed = CliRunner().invoke(cli, [*arguments, "--no-info", "--verbose=2", "--format=ISO8601"])

    assert "log_info true" in shown.output.splitlines()
    words = {"log_info false", "log_verbose_level 2", "log_format ISO8601", "log_error true"}
    assert words <= set(changed.output.splitlines())
    assert {**_LOG, "log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"} == ask(
        server, "/v2/logging"
    )[1]


@pytest.mark.row("C14", "C96")
def test_trace_settings_of_a_model_stand_over_those_of_all(server: Server) -> None:
    all_models, one = "/v2/trace/setting", "/v2/models/talker/trace/setting"
    assert (200, _TRACE) == ask(server, all_models)

    post(server, one, {"trace_rate": "77"})
    assert (200, {**_TRACE, "trace_rate": "88", "trace_count": "9"}) == post(
        server, all_models, {"trace_rate": "88", "trace_count": "9"}
    )

    assert (200, {**_TRACE, "trace_rate": "77", "trace_count": "9"}) == ask(server, one)
    assert "88" == post(server, one, {"trace_rate": None})[1]["trace_rate"]
    post(server, all_models, {"trace_rate": None, "trace_count": None})
    assert [(200, _TRACE)] * 4 == [ask(server, one) for _ in range(4)]


@pytest.mark.row("C96")
@pytest.mark.parametrize(
    ("document", "answer"),
    [
        (
            {"trace_file": "/etc/x"},
            (501, "trace file location can not be updated through network protocol"),
        ),
        (
            {"trace_level": ["TIMESTAMPS"]},
            (400, "Attempting to set invalid trace setting :trace file name is not given"),
        ),
        (
            {"trace_level": ["OFF", "TENSORS"]},
            (400, "Expect only one trace level 'OFF' is specified"),
        ),
        ({"trace_level": "OFF"}, (400, "attempt to access JSON non-array as array")),
        ({"trace_rate": 5}, (400, "attempt to access JSON non-string as string")),
        ({"trace_rate": "x"}, (400, "Unable to parse 'trace_rate', got: x")),
        (
            {"trace_count": "-2"},
            (400, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ),
        (
            {"log_frequency": "9" * 5000},
            (400, "Unable to parse 'log_frequency', value is out of range [ 0, 4294967295 ], got"),
        ),
    ],
)
def test_a_wrong_trace_setting_changes_nothing(
    server: Server, document: Any, answer: tuple[int, str]
) -> None:
    status, settings = post(server, "/v2/trace/setting", {"trace_count": "5", **document})

    assert answer == (status, settings["error"][: len(answer[1])])
    assert (200, _TRACE) == ask(server, "/v2/trace/setting")


@pytest.mark.row("C14", "C96")
def test_trace_settings_are_those_of_known_models_without_versions(server: Server) -> None:
    path = "/v2/models/nope/trace/setting"
    unknown = (400, {"error": "Request for unknown model : nope"})

    assert [unknown, unknown] == [ask(server, path), post(server, path, {})]
    assert 404 == ask(server, "/v2/models/talker/versions/1/trace/setting")[0]


@pytest.mark.row("D11")
def test_trace_settings_are_the_same_over_grpc(server: Server, rpc: Any) -> None:
    rpc.update_trace_settings("talker", {"trace_rate": "5"})

    values = {"trace_rate": ["5"], "trace_level": ["OFF"]}
    settings = rpc.get_trace_settings("talker").settings
    assert values == {key: list(settings[key].value) for key in values}
    assert "5" == ask(server, "/v2/models/talker/trace/setting")[1]["trace_rate"]
    rpc.update_trace_settings("talker", {"trace_rate": None})
    assert (200, _TRACE) == ask(server, "/v2/models/talker/trace/setting")


@pytest.mark.row("D11")
@pytest.mark.parametrize(
    ("model", "settings", "status", "text"),
    [
        (
            "",
            {"trace_rate": ["5", "6"]},
            "INVALID_ARGUMENT",
            "expect only 1 value for 'trace_rate'",
        ),
        ("nope", {}, "INVALID_ARGUMENT", "Request for unknown model : nope"),
        (
            "",
            {"trace_count": ["-2"]},
            "INVALID_ARGUMENT",
            "Unable to parse 'trace_count'. Expecting value >= -1, got: -2",
        ),
        (
            "",
            {"trace_file": ["/etc/x"]},
            "UNIMPLEMENTED",
            "trace file location can not be updated through network protocol",
        ),
    ],
)
def test_a_wrong_trace_setting_over_grpc_says_so(
    rpc: Any, model: str, settings: dict[str, list[str]], status: str, text: str
) -> None:
    request = service_pb2.TraceSettingRequest(model_name=model)
    for key, values in settings.items():
        request.settings[key].value.extend(values)

    with pytest.raises(grpc.RpcError) as raised:
        rpc._client_stub.TraceSetting(request, timeout=20)

    assert (status, text) == (raised.value.code().name, raised.value.details())
