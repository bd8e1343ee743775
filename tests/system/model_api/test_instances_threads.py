"""Instances that are threads of one process: what they share, what is their own, and who dies."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import sum_series
from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(),
]
THREADS = string_parameter("INSTANCES", "threads")
CONFIG = """
backend: "python"
input {{ name: "IN" data_type: TYPE_STRING dims: 1 }}
output {{ name: "OUT" data_type: TYPE_STRING dims: 1 }}
instance_group {{ count: {count} kind: KIND_CPU }}
"""
CONFIG_OF_NUMBERS = """
backend: "python"
input { name: "I" data_type: TYPE_INT64 dims: -1 }
output { name: "O" data_type: TYPE_INT64 dims: -1 }
"""
#: Evaluates what it is sent; `self`, `request` and the module's names are there.
CODE = """
import multiprocessing, os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

print("imported", flush=True)
family = pb_utils.MetricFamily(name="of_import", description="", kind=pb_utils.MetricFamily.COUNTER)
imported = family.Metric(labels={"made": "import"})
seen = {}

def make():
    time.sleep(0.1)
    seen["made"] = seen.get("made", 0) + 1
    return object()

def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]

class TritonPythonModel:
    @staticmethod
    def preload(args):
        seen["preloads"] = seen.get("preloads", 0) + 1

    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.shared = pb_utils.shared("weights", make)
        self.thread = threading.get_ident()
        if os.path.exists(args["model_repository"] + "/bad"):
            raise ValueError("bad file")
        self.family = pb_utils.MetricFamily(
            name="of_threads", description="", kind=pb_utils.MetricFamily.COUNTER)
        self.counter = self.family.Metric(labels={"instance": self.name})
        self.count = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            code = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flat[0].decode()
            self.counter.increment(1)
            imported.increment(1)
            self.count += 1
            try:
                result = eval(code, {**globals(), "self": self, "request": request})
            except Exception as error:
                result = repr(error)
            out = np.array([str(result)], object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses

    def finalize(self):
        pb_utils.Logger.log_info(f"finalized {self.name}")
"""


def write_model(
    server: Server, name: str, count: int = 3, more: str = THREADS, code: str = CODE
) -> Path:
    return server.write_model(name, CONFIG.format(count=count) + more, code)


def ask(server: Server, model: str, code: str) -> str:
    status, answer = server.infer_json(model, tensor("IN", "BYTES", [code]))
    assert status == 200, answer
    return str(answer["outputs"][0]["data"][0])


def ask_all(server: Server, model: str, code: str, count: int) -> list[str]:
    """Ask all instances at the same time: each is held until all have been asked."""
    ask(server, model, "seen.update(at=set())")
    held = (
        f"[seen['at'].add(self.name), [time.sleep(0.01) for _ in "
        f"iter(lambda: len(seen['at']) < {count}, False)], {code}][-1]"
    )
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: ask(server, model, held), range(count)))


def ready(server: Server, model: str) -> int:
    status, answer = server.request_json(f"/v2/models/{model}/scale")
    assert status == 200, answer
    return int(answer["versions"]["1"]["ready"])


@pytest.fixture(scope="module")
def threads(server: Server) -> Server:
    """The server with a model of three instances."""
    write_model(server, "threads")
    assert server.control_model("load", "threads") == ""
    return server


def test_instances_are_threads_of_one_process_with_one_object_each(threads: Server) -> None:
    mine = "(os.getpid(), id(self), threading.get_ident() == self.thread, id(self.shared))"

    answers = [eval(text) for text in ask_all(threads, "threads", mine, 3)]

    assert (1, 3) == (len({pid for pid, *_ in answers}), len({own for _, own, *_ in answers}))
    assert all(is_own_thread for _, _, is_own_thread, _ in answers)
    assert 1 == len({shared for *_, shared in answers})
    assert "{'preloads': 1, 'made': 1}" == ask(
        threads, "threads", "{k: seen[k] for k in ('preloads', 'made')}"
    )
    assert threads.stub_pids("threads") == [answers[0][0]]
    rows = [line.split() for line in ctl(threads, "status").output.splitlines()]
    assert [str(answers[0][0])] == [row[2] for row in rows if row[:2] == ["template", "threads:1"]]
    names = set(ask_all(threads, "threads", "self.name", 3))
    assert {"threads_0_0", "threads_0_1", "threads_0_2"} == names


def test_what_an_instance_says_is_its_own(threads: Server) -> None:
    code = (
        "[print('printed by', self.name), in_thread(lambda: print('thread of', self.name)), "
        "pb_utils.Logger.log_info('logged by ' + self.name), self.name][-1]"
    )

    names = ask_all(threads, "threads", code, 3)

    said = [f"{what} {name}" for what in ("printed by", "thread of", "logged by") for name in names]
    eventually(lambda: all(text in threads.log_text() for text in said), 60)
    for name in names:
        for text in ("printed by", "thread of"):
            lines = [x for x in threads.log_text().splitlines() if f'"{text} {name}"' in x]
            assert [True] == [name in line.partition(text)[0] for line in lines]


def test_metrics_of_the_import_and_of_each_instance_are_counted(threads: Server) -> None:
    # what other tests have counted may not be on the page
    before = float(ask(threads, "threads", "imported.value()"))
    ask_all(threads, "threads", "1", 3)  # and once more

    eventually(lambda: sum_series(threads, "of_import", made="import") == before + 4, 60)
    assert 3 == threads.metrics_text().count('of_threads{instance="threads_')


def test_calls_of_other_models_from_an_instance_and_its_threads(threads: Server) -> None:
    call = (
        "pb_utils.get_output_tensor_by_name(pb_utils.InferenceRequest(model_name='threads', "
        "requested_output_names=['OUT'], inputs=[pb_utils.Tensor('IN', np.array([b'1+1'], "
        "object))]).exec(), 'OUT').as_numpy()[0].decode()"
    )

    assert "2" == ask(threads, "threads", call)
    assert "2" == ask(threads, "threads", f"in_thread(lambda: {call})")


def test_a_fork_of_an_instance_asks_that_instance(threads: Server) -> None:
    code = (
        "[queue := multiprocessing.get_context('fork').SimpleQueue(), "
        "p := multiprocessing.get_context('fork').Process(target=lambda: queue.put("
        "(pb_utils.get_model_dir(), pb_utils.Logger.log_info('fork of ' + self.name)))), "
        "p.start(), r := queue.get(), p.join(), (r[0].endswith('/threads/1'), p.exitcode)][-1]"
    )

    assert "(True, 0)" == ask(threads, "threads", code)
    eventually(lambda: "fork of threads_0_" in threads.log_text(), 60)


def test_stacks_are_those_of_each_instance(threads: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(
            ask,
            threads,
            "threads",
            "[seen.update(go=0), [time.sleep(0.01) for _ in iter(lambda: seen['go'], 1)], "
            "self.name][-1]",
        )
        eventually(lambda: ask(threads, "threads", "'go' in seen") == "True", 60)

        def stacks() -> str:
            """It waits for some seconds only."""
            shown = ctl(threads, "stacks", "threads").output
            return shown if "in execute" in shown else ""

        shown = eventually(stacks, 60)
        ask(threads, "threads", "seen.update(go=1)")
    name = held.result()

    parts = {part.split(",")[0]: part for part in shown.split("\n\n")}
    assert {"threads_0_0", "threads_0_1", "threads_0_2"} == set(parts)
    assert [name] == [one for one, part in parts.items() if "in execute" in part]


def test_scaling_starts_and_ends_threads_of_the_process(threads: Server) -> None:
    pid = ask(threads, "threads", "os.getpid()")

    ctl(threads, "scale", "threads", "5")
    eventually(lambda: ready(threads, "threads") == 5, 60)
    assert {pid} == set(ask_all(threads, "threads", "os.getpid()", 5))
    ctl(threads, "scale", "threads", "3")
    eventually(lambda: threads.log_text().count("finalized threads_0_") >= 2, 60)

    assert {pid} == set(ask_all(threads, "threads", "os.getpid()", 3))


def test_what_an_instance_has_kept_in_a_global_stays_as_it_is_after_its_end(
    server: Server,
) -> None:
    doubled = "[pb_utils.InferenceResponse([pb_utils.Tensor('O', _one(r) * 2)]) for r in requests]"
    server.write_model(
        "doubled",
        CONFIG_OF_NUMBERS,
        "import triton_python_backend_utils as pb_utils\n"
        "_one = lambda request: request.inputs()[0].as_numpy()\n"
        "class TritonPythonModel:\n"
        f"    def execute(self, requests): return {doubled}\n",
    )
    write_model(server, "keepers", 2)
    assert ["", ""] == [server.control_model("load", name) for name in ("doubled", "keepers")]
    called = (
        "pb_utils.InferenceRequest(model_name='doubled', requested_output_names=['O'], inputs=["
        "pb_utils.Tensor('I', np.full(100_000, NUMBER, np.int64))]).exec().output_tensors()[0]"
        ".as_numpy()"
    )
    kept = f"seen.setdefault('kept', {{}}).update({{self.name: {called}}})".replace("NUMBER", "21")
    assert ["None"] * 2 == ask_all(server, "keepers", kept, 2)

    ctl(server, "scale", "keepers", "1")
    eventually(lambda: "finalized keepers_0_" in server.log_text(), 60)
    ask(server, "keepers", f"[len({called.replace('NUMBER', '_')}) for _ in range(20)]")

    contents = ask(
        server, "keepers", "sorted((name, set(a.tolist())) for name, a in seen['kept'].items())"
    )
    assert "[('keepers_0_0', {42}), ('keepers_0_1', {42})]" == contents


@pytest.mark.parametrize(
    "how",
    [
        "os._exit(3)",
        pytest.param(
            "os.kill(os.getpid(), 9)",
            marks=pytest.mark.long(
                "system/model_api/test_instances_threads.py::test_a_death_ends_all_with_each_request_told_and_all_come_back"
            ),
        ),
    ],
)
def test_a_death_ends_all_with_each_request_told_and_all_come_back(
    threads: Server, how: str
) -> None:
    pid = ask(threads, "threads", "os.getpid()")

    def ask_for_status(code: str) -> int:
        return threads.infer_json("threads", tensor("IN", "BYTES", [code]))[0]

    ask(threads, "threads", "seen.update(at=[])")
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(ask_for_status, "[seen['at'].append(1), time.sleep(600)]") for _ in range(2)
        ]
        eventually(lambda: ask(threads, "threads", "len(seen['at'])") == "2", 60)
        killer = pool.submit(ask_for_status, how)
        statuses = [one.result(60) for one in [*waiting, killer]]

    assert all(status >= 500 for status in statuses), statuses
    eventually(lambda: ready(threads, "threads") == 3, 60)
    now = set(ask_all(threads, "threads", "os.getpid()", 3))
    assert 1 == len(now)
    assert {pid} != now


def test_an_instance_that_hangs_ends_its_group_and_says_where(server: Server) -> None:
    write_model(server, "hanging", 2, THREADS + string_parameter("max_execution_seconds", "1"))
    assert server.control_model("load", "hanging") == ""
    pid = ask(server, "hanging", "os.getpid()")

    status, answer = server.infer_json("hanging", tensor("IN", "BYTES", ["time.sleep(600)"]))

    assert status >= 500
    assert "max_execution_seconds" in answer["error"]
    eventually(lambda: ready(server, "hanging") == 2, 60)
    assert pid != ask(server, "hanging", "os.getpid()")
    assert "hanging/1/model.py" in server.log_text().partition("max_execution_seconds")[2]
    server.control_model("unload", "hanging")


def test_a_cancelled_request_is_seen_by_its_instance(threads: Server) -> None:
    code = (
        "[seen.update(began=1), [time.sleep(0.01) for _ in iter(request.is_cancelled, True)], "
        "seen.update(cancelled=self.name)]"
    )
    client = http.client.HTTPConnection("127.0.0.1", threads.http_port)
    document = {"inputs": [tensor("IN", "BYTES", [code])]}
    client.request("POST", "/v2/models/threads/infer", json.dumps(document))
    eventually(lambda: ask(threads, "threads", "'began' in seen") == "True", 60)

    client.close()

    eventually(lambda: ask(threads, "threads", "'cancelled' in seen") == "True", 60)


def test_a_load_that_fails_says_why(server: Server) -> None:
    thread = "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()"
    write_model(server, "broken", code=f"{thread}; raise ValueError('no weights')")
    (write_model(server, "bad") / "bad").touch()

    assert "ValueError: no weights" in server.control_model("load", "broken")
    assert "ValueError: bad file" in server.control_model("load", "bad")
    # a process may still be ending
    eventually(lambda: [] == server.stub_pids("broken") == server.stub_pids("bad"), 30)
