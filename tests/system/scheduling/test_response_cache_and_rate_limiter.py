"""The response cache and the rate limiter of a real server, from outside."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.standard.ctl.system.commands import ctl
from tests.support import scripted
from tests.support.clients import infer_inputs
from tests.support.journal import ask_journal, read_journal
from tests.support.server import Copy, Server, Written
from tests.support.waiting import eventually

_CACHED = "response_cache { enable: true }\n"
#: Says how often the instance has executed this one.
_COUNTING = "self.kept['n'] = self.kept.get('n', 0) + 1\nreturn [reply(self.kept['n'])]"
_GROUPS = {
    "first": 'resources { name: "R" count: 1 }',
    "second": 'resources { name: "R" count: 1 } priority: 2',
}
_ENSEMBLE = """
platform: "ensemble"
input [ { name: "SCRIPT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "first_asked" model_version: -1
  input_map { key: "SCRIPT" value: "SCRIPT" } output_map { key: "TEXT" value: "TEXT" }
} ] }
"""


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            "scripted",
            Copy("scripted", "first_asked", _CACHED),
            Written("around", _ENSEMBLE),
            *(
                Copy(
                    "journal",
                    name,
                    edit=("kind: KIND_CPU }", f"kind: KIND_CPU rate_limiter {{ {group} }} }}"),
                )
                for name, group in _GROUPS.items()
            ),
        ],
        options=[
            "--runtime-directory=@DIRECTORY@/run",
            "--rate-limit=execution_count",
            "--rate-limit-resource=R:1",
            "--cache-config=local,size=4194304",
            "--model-control-mode=explicit",
            "--load-model=*",
        ],
    ),
]


def counts(server: Server, model: str) -> dict[str, int]:
    statistics = server.statistics(model)
    return {kind: of["count"] for kind, of in statistics["inference_stats"].items()} | {
        "executions": statistics["execution_count"],
        "inferences": statistics["inference_count"],
    }


@pytest.mark.row("E45", "--cache-config")
def test_equal_requests_are_executed_once_whichever_way_they_come(server: Server) -> None:
    model = "first_asked"
    before = counts(server, model)
    over_http = [scripted.generate(server, model, _COUNTING, "a", id=i) for i in ("1", "2")]
    [script] = infer_inputs(grpc_client, SCRIPT=np.array([_COUNTING.encode()], dtype=np.object_))
    [argument] = infer_inputs(grpc_client, ARGUMENT=np.array([b"a"], dtype=np.object_))
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        # HTTP's generate asks for all outputs, so this does.
        over_grpc = client.infer(model, [argument, script]).as_numpy("TEXT")[0].decode()
    other = scripted.generate(server, model, _COUNTING, "b")

    after = counts(server, model)

    assert (["1", "1"], "1", "2") == (over_http, over_grpc, other)
    changed = {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}
    executed = dict.fromkeys(("compute_input", "compute_infer", "compute_output"), 2)
    assert (
        executed
        | {
            "success": 4,
            "queue": 4,
            "cache_hit": 2,
            "cache_miss": 2,
            "executions": 2,
            "inferences": 2,
        }
        == changed
    )
    assert server.statistics(model)["inference_stats"]["cache_hit"]["ns"] > 0


@pytest.mark.row("nv_model_load_duration_secs")
def test_how_long_models_and_ensembles_took_to_load_is_measured(server: Server) -> None:
    lines = server.metrics_text().splitlines()

    took = {line: float(line.split()[-1]) for line in lines if "{" in line and "_load_d" in line}
    assert len(list(server.repository.iterdir())) == len(took)
    assert all(0 <= seconds < 60 for seconds in took.values()), took
    assert any(took.values())


# ------------------------------------------------------------------- the rate limiter


def _open(path: Path) -> set[str]:
    """Return what has begun and not ended."""
    records = read_journal(path)
    ended = {record.id for record in records if record.event == "end"}
    return {record.id for record in records} - ended


@pytest.mark.row("E38", "--rate-limit", "--rate-limit-resource")
def test_who_holds_a_resource_is_shown_and_its_death_gives_it_back(server: Server) -> None:
    held = threading.Thread(target=ask_journal, args=(server, "held", 60_000, "first"))
    held.start()
    eventually(lambda: "held" in _open(server.journal), 60, "it executes")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask_journal, server, "waiting", 0, "second")
        row = r"R\t0\t1 of 1\tfirst_0_0 \(1\)\tsecond_0_0"
        eventually(lambda: re.search(row, ctl(server, "status").output), 60, "the other one waits")
        metrics = server.metrics_text()
        assert not waiting.done()
        server.kill_only("stub", "first")

        assert 200 == waiting.result()
    held.join()
    assert 'zmqtriton_resource_count{device="0",resource="R"} 1' in metrics
    assert 'zmqtriton_resource_in_use{device="0",resource="R"} 1' in metrics
