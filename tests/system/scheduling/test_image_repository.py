"""The image example, started by its own command line, and what the server writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support import image_repository
from tests.support.server import Server
from tests.support.waiting import eventually

#: As the example has them, with the slip that it shows.
OPTIONS = [
    "--strict-model-config=false",
    "--model-control-mode=poll",
    "--repository-poll-secs=10",
    "--backend-config=tensorflow,version=2",
    "--log-verbose=1=1",
]
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(options=OPTIONS),
]


def prepare(server: Server) -> None:
    image_repository.write_repository(server.repository)


@pytest.fixture(scope="module")
def log(server: Server) -> str:
    """All that was written until an image had gone through."""
    answers = [infer(server, (0, 200, 10)), infer(server, (250, 0, 10), "mine")]
    assert [(1, 0.784), (0, 0.98)] == [(a["class"], a["score"]) for a in answers]

    def has_it_all() -> bool:
        text = server.log_text()
        last = (" released 1 requests", "printed by ", '"Started ', "HTTP request: 2 ")
        return [6, 2, 3, 2] == [text.count(words) for words in last]

    eventually(has_it_all, 30, "each process has said its last line")
    return server.log_text()


def infer(server: Server, color: tuple[int, int, int], own_id: str = "") -> Any:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        image = http_client.InferInput("image", [1], "BYTES")
        image.set_data_from_numpy(np.array([image_repository.ppm_image(color)], dtype=np.object_))
        texts: Any = client.infer("ensemble", [image], request_id=own_id).as_numpy("result")
    return json.loads(texts[0])


def said(log: str, text: str, about: str = "") -> list[str]:
    """The levels of the lines that say exactly this; about the request with this id too."""
    begin = rf"(?:\[request id: {about}\] )?" if about else ""
    line = rf'^([IWE])\d{{4}} [\d:]{{8}}\.\d{{6}} \d+ [\w.]+:\d+\] "{begin}{re.escape(text)}"$'
    return re.findall(line, log, re.MULTILINE)


def tables(log: str) -> dict[str, list[list[str]]]:
    """The rows of each table, by its header; each stands alone behind a line without text."""
    by_header = {}
    pattern = r"^I\d{4} [\d:.]+ \d+ [\w.]+:\d+\] \n(\+[-+]+\+\n(?:\|.*\|\n|\+[-+]+\+\n)+)\n"
    for table in re.findall(pattern, log, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in table.splitlines()
            if line.startswith("|")
        ]
        by_header[" | ".join(rows[0])] = rows[1:]
    return by_header


@pytest.mark.row("I03", "F07")
def test_loads_are_told_line_by_line(log: str) -> None:
    for model in ("core", "ensemble", "postprocessing", "preprocessing"):
        assert ["I"] == said(log, f"loading: {model}:1")
        assert ["I"] == said(log, f"successfully loaded '{model}'")
    for model, instance in (("core", "core_0"), ("preprocessing", "preprocessing_0_0")):
        initialize = "TRITONBACKEND_ModelInstanceInitialize: "
        assert ["I"] == said(log, f"TRITONBACKEND_ModelInitialize: {model} (version 1)")
        assert ["I"] == said(log, f"{initialize}{instance} (CPU device 0)")
        done = f"instance initialization successful {instance} (device 0)"
        assert ["I"] == said(log, initialize + done)


@pytest.mark.row("I04", "I05")
def test_environments_and_stubs_are_told(server: Server, log: str) -> None:
    place = server.repository / "preprocessing" / "python_env"
    canonical = "Returning canonical path since EXECUTION_ENV_PATH does not contain compressed path"

    assert ["W"] * 2 == said(
        log, "ignore version directory 'python_env' which fails to convert to integral number"
    )
    assert ["I"] == said(log, f"Using Python execution env {place}")
    assert ["I"] == said(log, f"{canonical}. Path: {place}")
    started = re.findall(r'"Starting Python backend stub: (\S+) (.*)"', log)
    assert [str(place / "bin" / "python")] == [p for p, rest in started if "preprocessing" in rest]
    assert ["I"] == said(
        log,
        "Shared memory configuration is shm-default-byte-size=1048576,"
        "shm-growth-byte-size=1048576,stub-timeout-seconds=30",
    )
    # Whose Python it was, the model says itself.
    assert f'printed by {place}"' in log


@pytest.mark.row("I06")
def test_a_request_is_told_on_its_way(log: str) -> None:
    assert ["I"] * 2 == said(log, "HTTP request: 2 /v2/models/ensemble/infer")

    def of(own_id: str) -> list[list[str]]:
        """Return what each process said; nothing tells whose line comes first in the log."""
        line = rf' (\d+) \S+\] "\[request id: {own_id}\] Setting state from (\w+ to \w+)"'
        by_pid: dict[str, list[str]] = {}
        for pid, way in re.findall(line, log):
            by_pid.setdefault(pid, []).append(way)
        return sorted(by_pid.values())

    # As a request of the client's, and as one of each model's.
    arrived = ["INITIALIZED to INITIALIZED", "INITIALIZED to PENDING"]
    executed = ["PENDING to EXECUTING", "EXECUTING to RELEASED"]
    assert [arrived, *[executed] * 3] == of("mine") == of("<id_unknown>")
    for model, instance in (("core", "core_0"), ("preprocessing", "preprocessing_0_0")):
        released = f"model instance name {instance} released 1 requests"
        assert ["I"] * 2 == said(log, f"model {model}, instance {instance}, executing 1 requests")
        assert ["I"] * 2 == said(log, f"TRITONBACKEND_ModelInstanceExecute: {released}")
    output = "add response output: output: input_image, type: FP32, shape: [1,3,224,224]"
    assert ["I"] * 2 == said(log, output, "mine")


@pytest.mark.row("I07", "I08", "I13")
def test_services_say_what_they_offer_and_where(server: Server, log: str) -> None:
    assert ["I"] == said(log, f"Started GRPCInferenceService at {server.grpc_address}")
    assert ["I"] == said(log, f"Started HTTPService at 127.0.0.1:{server.http_port}")
    assert ["I"] == said(log, f"Started Metrics Service at 127.0.0.1:{server.metrics_port}")
    assert said(log, "Polling model repository")
    calls = re.findall(r"\"Ready for RPC '(\w+)', 0\"", log)
    assert ["Check", "ServerLive", "ServerReady", "ModelReady"] == calls[:4]
    assert (["ModelStatistics", "Trace", "Logging"], 19) == (calls[-3:], len(calls))


@pytest.mark.row("I09", "I10")
def test_models_and_backends_stand_in_tables(log: str) -> None:
    by_header = tables(log)

    models = ("core", "ensemble", "postprocessing", "preprocessing")
    assert [[model, "1", "READY"] for model in models] == by_header["Model | Version | Status"]
    assert [] == by_header["Repository Agent | Path"]
    ((name, _, config),) = by_header["Backend | Path | Config"]
    assert "python" == name
    assert {
        "auto-complete-config": "true",
        "backend-directory": "/opt/tritonserver/backends",
        "min-compute-capability": "6.000000",
        "default-max-batch-size": "4",
    } == json.loads(config)["cmdline"]


@pytest.mark.row("I11", "I12")
def test_options_stand_in_tables(server: Server, log: str) -> None:
    by_header = tables(log)

    options = dict(by_header["Option | Value"])
    expected = {
        "server_id": "triton",
        "model_repository_path[0]": str(server.repository),
        "model_control_mode": "MODE_POLL",
        "strict_model_config": "0",
        "model_config_name": "",
        "rate_limit": "OFF",
        "strict_readiness": "1",
        "exit_timeout": "30",
        "cache_enabled": "0",
    }
    assert expected == {name: options[name] for name in expected}
    assert options["server_extensions"].startswith("classification sequence model_repository ")
    assert ["keepalive_time_ms", "7200000"] == by_header["GRPC KeepAlive Option | Value"][0]
    assert ["http2_max_ping_strikes", "2"] == by_header["GRPC KeepAlive Option | Value"][-1]


@pytest.mark.row("I01", "I15")
def test_a_model_s_line_has_its_place_and_what_it_prints_is_not_lost(log: str) -> None:
    about = r"(?:\[request id: mine\] )?"
    line = rf'^I\d{{4}} [\d:.]+ \d+ (\S+)\] "{about}===== INFO MSG ====="$'
    place = re.findall(line, log, re.MULTILINE)
    source = image_repository.MODELS["preprocessing"].splitlines()
    number = 1 + next(number for number, text in enumerate(source) if "INFO MSG" in text)

    assert [f"model.py:{number}"] * 2 == place
    # Every line of the log is a record's, or one of a table's or of a configuration below it, or
    # said before there was a log.
    rest = re.sub(r'( "Server side auto-completed config: "\n)(?:(?![IWE]\d{4} ).*\n)*', r"\1", log)
    odd = [
        line for line in rest.splitlines() if not re.match(r"[IWE]\d{4} |[+|]|$|Warning: ", line)
    ]
    assert [] == odd


@pytest.mark.row("I14")
def test_a_folder_that_is_no_model_is_an_error_with_a_reason(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", options=OPTIONS, frontends=())
    (server.repository / "temp").mkdir()
    (server.repository / "temp" / "notes").write_text("x")

    server.launch()
    eventually(lambda: server.returncode is not None, 60, server.log_text())

    why = (
        "Invalid model name: Could not determine backend for model 'temp' with no backend in "
        "model configuration. Expected model name of the form 'model.<backend_name>'."
    )
    log = server.log_text()
    assert 1 == server.returncode
    assert ["E"] == said(log, f"Poll failed for model directory 'temp': {why}")
    assert [["temp", "-", f"UNAVAILABLE: {why}"]] == tables(log)["Model | Version | Status"]
    assert "error: creating server: Internal - failed to load all models" in log
