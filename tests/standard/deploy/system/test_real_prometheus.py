"""A real Prometheus with the files of deploy/prometheus, which reads a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.standard.deploy.test_expressions import panels
from tests.support import raw_http2 as h2
from tests.support.needs import ROOT, find_tool
from tests.support.server import Copy, Server, ask_add_sub, free_ports
from tests.support.waiting import eventually
from tools.metrics_table import names_in, read_table

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy(
                "add_sub",
                config="\nresponse_cache { enable: true }\n"
                "instance_group [{ count: 1 rate_limiter { "
                "resources [{ name: 'R' count: 1 }] } }]\n",
            ),
            "doubled",
        ],
        options=[
            "--model-control-mode=explicit",
            "--load-model=*",
            "--metrics-config=histogram_latencies=true",
            "--metrics-config=summary_latencies=true",
            "--cache-config=local,size=1048576",
            "--rate-limit=execution_count",
            "--max-model-segment-bytes=1000000000",
        ],
    ),
]
FILES = ROOT / "deploy" / "prometheus"
#: What this server cannot have, a GPU, models loaded on demand, canaries, jobs and a collector, or
#: need not have yet.
_ABSENT = re.compile(
    r"nv_gpu_|nv_energy_|gen_ai_|zmqtriton_(on_demand|evictions|sleeps|models_(gpu_)?memory|canary)_"
    r"|zmqtriton_(client_memory|affinity|token|access|model_refused|model_trouble|webhook|otlp|captures|certificate)_|zmqtriton_(oldest_)?jobs?(_|$)"
)
_TYPE = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def called(server: Server) -> None:
    """A call over gRPC, of which there are counts from then on."""
    with h2.Connection(server.grpc_port) as connection:
        path = "/inference.GRPCInferenceService/ServerLive"
        connection.send(h2.headers_frame(1, path), h2.data_frame(1, b"", flags=h2.END_STREAM))
        connection.read_until(b"grpc-status")


@pytest.fixture(scope="module")
def ask(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Ask a Prometheus that reads the server each second."""
    program = find_tool("prometheus")
    directory = tmp_path_factory.mktemp("prometheus")
    configuration = (FILES / "prometheus.yml").read_text("utf-8")
    assert "localhost:8002" in configuration
    configuration = configuration.replace("localhost:8002", f"127.0.0.1:{server.metrics_port}")
    (directory / "prometheus.yml").write_text(configuration.replace(": 15s", ": 1s"))
    shutil.copy(FILES / "zmqtriton.rules.yml", directory)
    [port] = free_ports(1)
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]

    def query(path: str, **arguments: str) -> Any:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def has_read() -> bool:
        try:
            return len(query("query", query="rate(zmqtriton_ready[1m])")["result"]) == 1
        except OSError:
            return False

    with subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(has_read, 60)
            yield query
        finally:
            process.terminate()


def test_the_page_has_what_the_table_of_metrics_says_and_nothing_else(server: Server) -> None:
    assert 200 == ask_add_sub(server)
    # processes tell what they count once a second
    names = "zmqtriton_http_responses_total", 'zmqtriton_grpc_responses_total{code="OK"} 1\n'

    def has_both() -> bool:
        text = server.metrics_text()
        return all(name in text for name in names)

    eventually(has_both, 30, "counts of the frontends")

    types = dict(_TYPE.findall(server.metrics_text()))

    table = read_table()
    kinds = {name: metric.kind for name, metric in table.items()}
    assert {name: kinds.get(name) for name in types} == types
    assert [] == [name for name in table if name not in types and not _ABSENT.match(name)]


@pytest.mark.long(
    "standard/deploy/test_prometheus.py::test_alerts_fire_for_what_they_are_about_and_for_nothing_else",
    "standard/deploy/test_prometheus.py::test_the_configuration_and_its_rules_are_valid",
)
def test_every_rule_is_evaluated_and_a_broken_model_is_on_its_way_to_an_alert(
    ask: Callable[..., Any], server: Server
) -> None:
    broken = server.add_model("add_sub", "broken") / "1" / "model.py"
    broken.write_text("import there_is_no_such_module\n")
    assert "there_is_no_such_module" in server.control_model("load", "broken")

    def pending() -> set[str]:
        return {alert["labels"]["alertname"] for alert in ask("alerts")["alerts"]}

    eventually(lambda: {"ZmqtritonModelNotReady", "ZmqtritonNotReady"} <= pending(), 60)
    groups = ask("rules")["groups"]

    # a busy machine may have been too late for one reading
    eventually(lambda: "ZmqtritonDown" not in pending(), 60)
    health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert {"ok"} == set(health.values()), health


@pytest.mark.long(
    "standard/deploy/test_expressions.py::test_the_dashboard_reads_metrics_that_exist_and_nearly_all_of_them"
)
def test_prometheus_understands_every_panel_of_the_dashboard(
    ask: Callable[..., Any], server: Server
) -> None:
    table = read_table()
    count = 0

    def is_answered(expression: str) -> bool:
        assert 200 == ask_add_sub(server)  # rates need requests between two readings
        return bool(ask("query", query=expression)["result"])

    eventually(lambda: is_answered("rate(nv_inference_request_success[1m]) > 0"), 60)
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1h")
            expression = expression.replace("$instance", ".*").replace("$model", ".*")
            count += 1
            may_be_empty = "> 0" in expression or any(
                map(_ABSENT.match, names_in(expression, table))
            )
            if may_be_empty:
                ask("query", query=expression)
            else:
                # some series begin with the first request, and need two readings, too
                said = f"an answer to {expression} ({panel['title']})"
                eventually(lambda: is_answered(expression), 60, said)  # noqa: B023
    assert count > 60
