"""Clients that others have written work with our server as they are."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.server import Server
from tests.system.clients import kserve_calls, mlserver_calls

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=["add_sub", "doubled", "sequences", "string_upper", "tokens"],
        options=[
            "--allow-client-shm=true",
            "--metrics-config=histogram_latencies=true",
            "--metrics-config=summary_latencies=true",
        ],
    ),
]

REQUESTS = 20
#: the highest concurrency of the runs below
MAX_AT_ONCE = 4
CUDA_MEMORY = "--shared-memory=cuda"
UNKNOWN = "Request for unknown model: 'nobody' is not found"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other test session on this machine is in here.

    What perf_analyzer calls its shared memory is always the same.
    """
    path = Path(tempfile.gettempdir()) / f"zmqtriton-perf-analyzer-{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def analyze(perf_analyzer: list[str], *words: str) -> str:
    """Return the report of perf_analyzer on REQUESTS requests, after it has ended well."""
    command = [*perf_analyzer, f"--request-count={REQUESTS}", *words]
    with alone():
        finished = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def reported(report: str, what: str) -> float:
    match = re.search(rf"{what}: ([\d.]+)", report)
    assert match is not None, report
    return float(match[1])


def answers(python: Path, program: Any, *words: str) -> dict[str, Any]:
    """The outcomes of the calls of a program under this Python."""
    command = [str(python), program.__file__, *words]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.row("M03")
@pytest.mark.parametrize(
    ("model", "protocol", "words"),
    [
        ("add_sub", "http", ("-b2", "--concurrency-range=2")),
        pytest.param(
            "add_sub",
            "http",
            ("-a", "--shared-memory=system"),
            marks=pytest.mark.long(
                "system/clients/test_unmodified_clients.py::test_perf_analyzer_measures",
                "system/protocols/test_shared_memory.py::test_a_region_registered_anywhere_is_known_everywhere",
            ),
        ),
        pytest.param(
            "add_sub",
            "grpc",
            ("-a", "--request-rate-range=20", "--shared-memory=system"),
            marks=pytest.mark.long(
                "system/clients/test_unmodified_clients.py::test_perf_analyzer_measures",
                "system/protocols/test_shared_memory.py::test_a_region_registered_anywhere_is_known_everywhere",
            ),
        ),
        pytest.param("add_sub", "http", ("-a", CUDA_MEMORY), marks=pytest.mark.gpu),
        pytest.param("add_sub", "grpc", ("-a", CUDA_MEMORY), marks=pytest.mark.gpu),
        ("add_sub", "grpc", ("-a", "--streaming", "--concurrency-range=4")),
        pytest.param(
            "doubled",
            "http",
            (),
            marks=pytest.mark.long(
                "system/clients/test_unmodified_clients.py::test_perf_analyzer_measures",
                "system/scheduling/test_pipelines.py::test_an_ensemble_answers_what_its_steps_have_made",
            ),
        ),
        pytest.param(
            "sequences",
            "http",
            ("--sequence-length=4", "--input-data=zero"),
            marks=pytest.mark.long(
                "system/clients/test_unmodified_clients.py::test_perf_analyzer_measures",
                "system/scheduling/test_sequences.py::test_a_sequence_adds_up_from_start_to_end",
            ),
        ),
        pytest.param(
            "sequences",
            "grpc",
            ("--streaming", "--sequence-length=4", "--input-data=zero"),
            marks=pytest.mark.long(
                "system/clients/test_unmodified_clients.py::test_perf_analyzer_measures",
                "system/scheduling/test_sequences.py::test_a_sequence_adds_up_from_start_to_end",
            ),
        ),
    ],
)
def test_perf_analyzer_measures(
    server: Server, perf_analyzer: list[str], model: str, protocol: str, words: tuple[str, ...]
) -> None:
    if CUDA_MEMORY in words and not pytest.importorskip("cupy").is_available():
        pytest.skip("cupy finds no GPU")
    address = server.url.removeprefix("http://") if protocol == "http" else server.grpc_address
    before = server.statistics(model)["inference_stats"]

    report = analyze(perf_analyzer, f"-m{model}", f"-u{address}", f"-i{protocol}", *words)

    after = server.statistics(model)["inference_stats"]
    assert reported(report, "Request count") >= REQUESTS
    # It asks for its first statistics while its first requests are under way: they may be in them.
    assert reported(report, "Successful request count") >= REQUESTS - MAX_AT_ONCE
    assert after["success"]["count"] - before["success"]["count"] >= REQUESTS
    assert before["fail"]["count"] == after["fail"]["count"]
    assert ("Composing models" in report) == (model == "doubled")


@pytest.mark.row("M03", "M04")
def test_perf_analyzer_waits_for_the_last_response_of_a_stream(
    server: Server, perf_analyzer: list[str], tmp_path: Path
) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"COUNT": [3], "DELAY_US": [0]}]}))

    export = tmp_path / "export.json"
    report = analyze(
        perf_analyzer,
        "-mtokens",
        f"-u{server.grpc_address}",
        "-igrpc",
        "--streaming",
        "-a",
        f"--input-data={data}",
        "--concurrency-range=2",
        f"--profile-export-file={export}",
    )

    assert reported(report, "Request count") == REQUESTS
    # This is what genai-perf makes its figures of.
    [experiment] = json.loads(export.read_text())["experiments"]
    responses = [request["response_outputs"] for request in experiment["requests"]]
    tokens = [[output["TOKEN"] for output in outputs if "TOKEN" in output] for outputs in responses]
    assert len(tokens) >= REQUESTS
    assert tokens == [["token0", "token1", "token2"]] * len(tokens)


_SUMS = (2 * kserve_calls.VALUES).ravel().tolist()
_OUTPUTS = {"OUTPUT0": _SUMS, "OUTPUT1": [0.0] * len(_SUMS)}


@pytest.mark.row("M05")
def test_kserves_clients_work(server: Server, python_with_kserve: Path) -> None:
    outcomes = answers(python_with_kserve, kserve_calls, server.url, server.grpc_address)

    words = [outcomes.pop(f"{form} words")[1:] for form in ("json", "binary")]
    assert 2 * [["string_upper", {}, {"OUTPUT0": ["A", "Ä"]}]] == words
    refusal = outcomes.pop("grpc unknown model")
    assert ("AioRpcError", True) == (refusal[0], UNKNOWN in refusal[2])
    malformed = outcomes.pop("dictionary")
    assert (400, True) == (malformed[1], "expected 2 inputs but got 0 inputs" in malformed[2])
    inferred = ["k1", "add_sub", {}, _OUTPUTS]
    assert {
        "server is live": True,
        "server is ready": True,
        "model is ready": True,
        "unknown model is ready": False,
        "json": inferred,
        "binary": inferred,
        "binary output": ["k1", "add_sub", {}, {"OUTPUT0": _SUMS}],
        "parameters": inferred,
        "unknown model": ["HTTPStatusError", 400, UNKNOWN],
        "grpc server is live": True,
        "grpc server is ready": True,
        "grpc model is ready": True,
        "grpc contents": inferred,
        "grpc raw": inferred,
    } == outcomes


@pytest.mark.long("system/clients/test_unmodified_clients.py::test_kserves_clients_work")
@pytest.mark.row("M05")
def test_mlservers_types_write_requests_and_read_answers(
    server: Server, python_with_mlserver: Path
) -> None:
    outcomes = answers(python_with_mlserver, mlserver_calls, server.url)

    inputs = [[name, "FP32", [-1, 16]] for name in ("INPUT0", "INPUT1")]
    assert {
        "server": ["str", True],
        "model": ["add_sub", inputs],
        "numpy": ["m1", "1", {"OUTPUT0": [_SUMS], "OUTPUT1": np.zeros((1, 16)).tolist()}],
        "words": ["A", "Ä"],
        "output": ["OUTPUT1"],
        "refusal": UNKNOWN,
    } == outcomes


@pytest.mark.row("M06")
def test_prometheus_reads_the_whole_page(server: Server) -> None:
    server.request_json("/v2/models/tokens/generate", {"COUNT": 1})

    page = server.metrics_text()

    families = {family.name: family for family in text_string_to_metric_families(page)}
    rows = [line for line in page.splitlines() if line and not line.startswith("#")]
    samples = [sample for family in families.values() for sample in family.samples]
    assert (len(rows), len({(s.name, *s.labels.items()) for s in samples})) == (len(samples),) * 2
    assert {"counter", "gauge", "histogram", "summary"} == {f.type for f in families.values()}
    assert all(family.documentation for family in families.values())
    [ready] = [
        sample.value
        for sample in families["nv_inference_request_success"].samples
        if sample.labels == {"model": "tokens", "version": "1"}
    ]
    assert ready >= 1
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in families["nv_inference_first_response_histogram_ms"].samples
        if sample.name.endswith("_bucket") and sample.labels["model"] == "tokens"
    ]
    assert buckets == sorted(buckets)
    assert float("inf") == buckets[-1][0]
