"""The metrics page of a real server has what the table of metrics says."""

from __future__ import annotations

import re

import pytest

from tests.support import raw_http2 as h2
from tests.support.server import Copy, Server, ask_add_sub
from tests.support.waiting import eventually
from tools.metrics_table import read_table

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
