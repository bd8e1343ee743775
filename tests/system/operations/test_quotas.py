"""Models that take more than they may, and one beside them that does not notice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import sum_series
from tests.support.scripted import asked_meanwhile, generate, string_parameter
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("scripted", "beside"),
            Copy("scripted", "large", string_parameter("max_segment_bytes", "3M")),
            Copy(
                "scripted",
                "growing",
                string_parameter("max_memory_bytes", "200M") + string_parameter("cpu_weight", "50"),
            ),
            Copy(
                "scripted",
                "fast",
                string_parameter("max_executions_per_second", "2")
                + string_parameter("max_requests", "3"),
            ),
        ]
    ),
]
MIB = 1 << 20
LARGE = 'return [reply("x" * int(text_of(request)))]'
GROW = """
    import time
    self.kept["much"] = b"x" * int(text_of(request))
    time.sleep(60 if len(self.kept["much"]) > 200 << 20 else 0)
    return [reply("grown")]
"""
SMALL = 'return [reply("small")]'


@pytest.fixture(autouse=True)
def beside(server: Server) -> Iterator[None]:
    """Whatever the others do, this model answers."""
    assert "small" == generate(server, "beside", SMALL)
    with asked_meanwhile(server, "beside", SMALL):
        yield


@pytest.mark.row("L22")
def test_tensors_have_so_much_shared_memory_and_no_more(server: Server) -> None:
    [before] = server.stub_pids("large")

    refused = generate(server, "large", LARGE, str(4 * MIB))

    assert "Failed to increase the shared memory pool size to " in refused
    assert f"Model 'large' may have {3 * MIB} bytes of shared memory (max_segment_bytes)" in refused
    for size in (2 * MIB, 100_000, 2 * MIB, 400_000):
        assert size == len(generate(server, "large", LARGE, str(size)))
    assert [before] == server.stub_pids("large")


@pytest.mark.row("L22")
def test_an_instance_with_too_much_memory_is_replaced(server: Server) -> None:
    [before] = server.stub_pids("growing")
    assert "grown" == generate(server, "growing", GROW, str(100 * MIB))
    assert [before] == server.stub_pids("growing")

    lost = generate(server, "growing", GROW, str(300 * MIB))

    assert re.search(rf"it used \d+ of at most {200 * MIB} bytes \(max_memory_bytes\)", lost)
    assert "grown" == generate(server, "growing", GROW, str(MIB))
    assert [before] != server.stub_pids("growing")


@pytest.mark.row("L22")
def test_processes_have_their_share_of_the_cores(server: Server) -> None:
    [pid], [other] = server.stub_pids("growing"), server.stub_pids("beside")

    assert os.getpriority(os.PRIO_PROCESS, other) + 3 == os.getpriority(os.PRIO_PROCESS, pid)


def _memory_after_an_answer(server: Server) -> float:
    generate(server, "large", LARGE, str(2 * MIB))
    labels = {"model": "large", "quota": "max_segment_bytes"}
    return sum_series(server, "zmqtriton_quota_used", **labels)


@pytest.mark.row("L22")
def test_limits_and_what_became_of_them_are_shown(server: Server) -> None:
    generate(server, "large", LARGE, str(4 * MIB))

    status = ctl(server, "status").stdout

    assert re.search(r"^large\tmax_segment_bytes\t3145728\t\d+\t[1-9]", status, re.MULTILINE)
    assert re.search(r"^growing\tcpu_weight\t50\t-\t-$", status, re.MULTILINE)
    assert "limits on memory and cores are kept by " in status
    assert not re.search("^(large|beside)", ctl(server, "status", "growing").stdout, re.MULTILINE)
    labels = {"model": "large", "quota": "max_segment_bytes"}
    assert 3 * MIB == sum_series(server, "zmqtriton_quota_limit", **labels)
    assert sum_series(server, "zmqtriton_quota_used", **labels) <= 3 * MIB
    eventually(lambda: _memory_after_an_answer(server) > 0, 30)
    assert 0 < sum_series(server, "zmqtriton_quota_exceeded_total", **labels)
    assert not sum_series(server, "zmqtriton_quota_limit", model="beside")
