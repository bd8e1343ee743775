"""Instances that are forks of a template: what they share, what is refused, and who may die."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(),
]
FORKS = string_parameter("INSTANCES", "forks")
MEGABYTES = 100

CODE = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

print("imported", flush=True)

class TritonPythonModel:
    @staticmethod
    def preload(args):
        TritonPythonModel.loaded_by = os.getpid(), args["model_name"], args["model_version"]
        TritonPythonModel.weights = np.ones({bytes}, np.uint8)
        TritonPythonModel.family = pb_utils.MetricFamily(
            name="of_forks", description="", kind=pb_utils.MetricFamily.COUNTER)
        pb_utils.Logger.log_info("is preloaded")

    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.counter = self.family.Metric(labels={{"instance": self.name}})

    def execute(self, requests):
        self.counter.increment(1)
        text = f"{{os.getpid()}} {{' '.join(map(str, self.loaded_by))}} {{self.name}}"
        out = np.array([text.encode()], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", out)]) for _ in requests]
"""
CONFIG = """
backend: "python"
input {{ name: "IN" data_type: TYPE_INT32 dims: 1 }}
output {{ name: "TEXT" data_type: TYPE_STRING dims: 1 }}
instance_group {{ count: {count} kind: KIND_CPU }}
"""


def write_model(server: Server, name: str, code: str, count: int = 1, more: str = FORKS) -> None:
    server.write_model(name, CONFIG.format(count=count) + more, code)


def ask(server: Server, model: str) -> list[str]:
    status, answer = server.infer_json(model, tensor("IN", "INT32", [1]))
    assert status == 200, answer
    return str(answer["outputs"][0]["data"][0]).split()


def template_of(server: Server, model: str) -> psutil.Process:
    return psutil.Process(int(ask(server, model)[1]))


def pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no PSS")


def test_instances_share_what_was_preloaded_and_are_restarted_from_it(server: Server) -> None:
    write_model(server, "shared", CODE.format(bytes=MEGABYTES << 20), count=3)
    server.control_model("load", "shared")

    pid, loaded_by, name, version, _ = ask(server, "shared")

    template = psutil.Process(int(loaded_by))
    assert (name, version) == ("shared", "1")
    assert "template" in " ".join(template.cmdline())
    eventually(lambda: server.log_text().count("is preloaded") == 1, 60)
    pids = server.stub_pids("shared")
    assert 3 == len(pids)
    assert int(pid) in pids
    assert os.getppid() != template.pid not in pids
    assert sum(map(pss, [*pids, template.pid])) < 2 * (MEGABYTES << 20)
    eventually(lambda: "of_forks" in server.metrics_text(), 60)

    # one more, and one in the place of a dead one, are forks of the same template
    ctl(server, "scale", "shared", "4")
    eventually(lambda: len(server.stub_pids("shared")) == 4, 60)
    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: ask(server, "shared")[0] != pid, 60)
    eventually(lambda: len(server.stub_pids("shared")) == 4, 60)
    assert 1 == server.log_text().count("is preloaded")

    # the template's death hurts nobody, and the next fork is of another one
    before = server.stub_pids("shared")
    template.kill()
    eventually(lambda: not template.is_running(), 60)
    assert before == server.stub_pids("shared")
    ctl(server, "scale", "shared", "5")
    eventually(lambda: len(server.stub_pids("shared")) == 5, 60)
    eventually(lambda: server.log_text().count("is preloaded") == 2, 60)

    # a reload has another one, and an unload none
    code = server.repository / "shared" / "1" / "model.py"
    code.write_text(code.read_text().replace("is preloaded", "is preloaded anew"))
    server.control_model("load", "shared")
    eventually(lambda: "is preloaded anew" in server.log_text(), 60)
    last = template_of(server, "shared")
    server.control_model("unload", "shared")
    eventually(lambda: not last.is_running(), 60)


MODEL = """
class TritonPythonModel:
    @staticmethod
    def preload(args):
        {preload}

    def execute(self, requests):
        return []
"""


@pytest.mark.parametrize(
    ("preload", "error"),
    [
        (
            "import threading, time; threading.Thread("
            "target=time.sleep, args=(60,), name='worker', daemon=True).start()",
            "threads are alive after preload(), which a fork does not have: 'worker'. End them",
        ),
        (
            "import threading, time; threading.Thread("
            "target=time.sleep, args=(600,), name='endless').start()",
            "threads are alive after preload(), which a fork does not have: 'endless'. End them",
        ),
        (
            "import grpc; TritonPythonModel.channel = grpc.insecure_channel('127.0.0.1:1')",
            # its threads begin anew after each fork, and have their names a moment later
            "threads are alive after preload(), which a fork does not have: '",
        ),
        (
            "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
            " raise ValueError('no luck')",
            "ValueError: no luck",
        ),
        (
            "import asyncio; TritonPythonModel.loop = asyncio.new_event_loop()",
            "an event loop (or gRPC channel) is open after preload()",
        ),
        ("raise ValueError('no weights')", "ValueError: no weights"),
        ("import os; os._exit(3)", "the template that it is forked from: exited with status 3"),
    ],
)
def test_what_a_fork_would_break_is_refused(server: Server, preload: str, error: str) -> None:
    name = f"refused_{abs(hash(preload))}"
    write_model(server, name, MODEL.format(preload=preload), count=2)

    answer = server.control_model("load", name)
    assert error in answer, answer
    assert server.stub_pids(name) == []


def test_a_load_ends_that_takes_too_long_or_is_not_wanted_any_more(server: Server) -> None:
    limit = string_parameter("max_load_seconds", "1")
    code = MODEL.format(preload="print(args['model_name'], 'waits'); import time; time.sleep(600)")
    write_model(server, "slow", code, more=FORKS + limit)

    assert "loading took longer than max_load_seconds (1)" in server.control_model("load", "slow")

    write_model(server, "slower", code)
    with ThreadPoolExecutor() as pool:
        load = pool.submit(server.control_model, "load", "slower")
        eventually(lambda: "slower waits" in server.log_text(), 60)
        assert server.control_model("unload", "slower") == ""
        assert "unload" in load.result()


def test_no_template_outlives_a_killed_server(tmp_path: Path) -> None:
    server = Server(tmp_path / "server", frontends=())
    write_model(server, "shared", CODE.format(bytes=1))
    with server:
        template = template_of(server, "shared")
        server.kill()

        eventually(lambda: not template.is_running(), 60)
