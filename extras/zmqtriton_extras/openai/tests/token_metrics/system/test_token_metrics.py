"""Tokens of a real server's models, by OpenAI's routes and by Triton's own."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for word in (b"a", b"b", b"c"):
                outputs = [pb_utils.Tensor("text_output", np.array([word], dtype=object))]
                if COUNTS:
                    outputs.append(pb_utils.Tensor("num_input_tokens", np.array([7], np.uint32)))
                    outputs.append(pb_utils.Tensor("num_output_tokens", np.array([2], np.uint32)))
                sender.send(pb_utils.InferenceResponse(outputs))
            sender.send(flags=FINAL)
"""
CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "num_input_tokens" data_type: TYPE_UINT32 dims: [ 1 ] },
  { name: "num_output_tokens" data_type: TYPE_UINT32 dims: [ 1 ] }
]
"""
_ADAPTERS = """
parameters { key: "openai_lora_adapters" value { string_value: "french, legal" } }
"""
#: Answers once the file is there.
_HELD = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists(GO):
            time.sleep(0.01)
        text = pb_utils.Tensor("text_output", np.array([b"a"], dtype=object))
        return [pb_utils.InferenceResponse([text]) for _ in requests]
"""
#: Streams until the file is there.
_LONG = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        while not os.path.exists(END):
            text = pb_utils.Tensor("text_output", np.array([b"a"], dtype=object))
            sender.send(pb_utils.InferenceResponse([text]))
            time.sleep(0.02)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
#: Has an engine that counts by itself.
_ENGINE = """
import numpy as np
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import MetricFamily

GAUGE, COUNTER = MetricFamily.GAUGE, MetricFamily.COUNTER


class TritonPythonModel:
    def initialize(self, args):
        labels = {"model_name": args["model_name"]}
        self.metrics = []
        for name, kind in (("num_requests_waiting", GAUGE), ("generation_tokens_total", COUNTER)):
            family = MetricFamily(f"vllm:{name}", "Of the engine", kind)
            metric = family.Metric(labels)
            metric.increment(5)
            self.metrics += family, metric

    def execute(self, requests):
        text = pb_utils.Tensor("text_output", np.array([b"a"], dtype=object))
        return [pb_utils.InferenceResponse([text]) for _ in requests]
"""
_REPORTED = """
parameters { key: "REPORT_CUSTOM_METRICS" value { string_value: "true" } }
"""
_MADE = "vllm:generation_tokens_total"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ["--allow-openai=true", "--token-metrics"]
    server = Server(tmp_path_factory.mktemp("tokens"), ["identity_fp32"], options=options)
    for name, counts in (("counting", True), ("plain", False)):
        code = server.repository / name / "1" / "model.py"
        code.parent.mkdir(parents=True)
        code.write_text(f"COUNTS = {counts}\n{MODEL}")
        (server.repository / name / "config.pbtxt").write_text(CONFIG)
    with open(server.repository / "counting" / "config.pbtxt", "a") as file:
        file.write(_ADAPTERS)
    held = server.repository / "held" / "1" / "model.py"
    held.parent.mkdir(parents=True)
    held.write_text(f"GO = {str(server.scratch / 'go')!r}\n{_HELD}")
    config = CONFIG.replace("model_transaction_policy { decoupled: true }", "")
    (server.repository / "held" / "config.pbtxt").write_text(config)
    long = server.repository / "long" / "1" / "model.py"
    long.parent.mkdir(parents=True)
    long.write_text(f"END = {str(server.scratch / 'end')!r}\n{_LONG}")
    (server.repository / "long" / "config.pbtxt").write_text(CONFIG)
    engine = server.repository / "engine" / "1" / "model.py"
    engine.parent.mkdir(parents=True)
    engine.write_text(_ENGINE)
    (server.repository / "engine" / "config.pbtxt").write_text(f"{config}{_REPORTED}")
    with server:
        yield server


def complete(server: Server, model: str) -> None:
    form = {"model": model, "prompt": "once", "stream": False}
    status, answer = server.request_json("/v1/completions", form)
    assert status == 200, answer


def stream(server: Server, model: str) -> None:
    url = f"{server.url}/v2/models/{model}/generate_stream"
    with urllib.request.urlopen(url, b'{"text_input": "once"}', timeout=60) as answer:
        assert answer.read().count(b"data:") == 3


def test_tokens_of_a_stream_count_while_it_is_open_and_once(server: Server) -> None:
    url = f"{server.url}/v2/models/long/generate_stream"
    with urllib.request.urlopen(url, b'{"text_input": "once"}', timeout=60) as answer:
        eventually(lambda: sum_series(server, _MADE, model_name="long") > 0, 60, "it is open")
        (server.scratch / "end").touch()
        sent = answer.read().count(b"data:")

    eventually(lambda: sum_series(server, _MADE, model_name="long") == sent, 60, "all, once")


def test_tokens_that_a_model_counts_are_summed_over_routes(server: Server) -> None:
    complete(server, "counting")
    stream(server, "counting")

    names = [
        *(_MADE, "vllm:prompt_tokens_total"),
        *(f"vllm:time_{n}_seconds_count" for n in ("to_first_token", "per_output_token")),
    ]
    of = {"model_name": "counting"}
    eventually(lambda: [sum_series(server, n, **of) for n in names] == [12, 14, 2, 2], 60)
    assert sum_series(server, "vllm:time_to_first_token_seconds_sum", **of) > 0


def test_of_a_model_that_counts_none_responses_are_tokens(server: Server) -> None:
    before = sum_series(server, _MADE, model_name="plain")

    stream(server, "plain")

    # what the test of a killed process has streamed may be counted still
    eventually(lambda: sum_series(server, _MADE, model_name="plain") >= before + 3, 60)
    assert 'vllm:prompt_tokens_total{model_name="plain"' not in server.metrics_text()


def test_gateways_read_waiting_requests_use_and_adapters(server: Server) -> None:
    labels = {"model_name": "held", "version": "1"}

    def read() -> list[float]:
        names = ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc")
        return [sum_series(server, f"vllm:{name}", **labels) for name in names]

    assert read() == [0, 0, 0]
    with ThreadPoolExecutor(3) as pool:
        try:
            answers = [pool.submit(complete, server, "held") for _ in range(3)]
            eventually(lambda: read() == [2, 1, 1], 60)
        finally:
            (server.scratch / "go").touch()
        assert [each.result(60) for each in answers] == [None] * 3
    text = server.metrics_text()
    assert 'running_lora_adapters="counting_lora_french,counting_lora_legal"' in text
    assert text.count("vllm:lora_requests_info{") == 1


def test_a_family_of_an_engine_and_of_other_models_has_one_head(server: Server) -> None:
    stream(server, "plain")
    eventually(lambda: sum_series(server, _MADE, model_name="plain") > 0, 60)

    lines = server.metrics_text().splitlines()

    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert sorted(set(names)) == sorted(names)
    for name in (_MADE, "vllm:num_requests_waiting"):
        places = [n for n, line in enumerate(lines) if line.startswith(f"{name}{{")]
        assert f"# TYPE {name} " in lines[places[0] - 1]
        assert list(range(places[0], places[-1] + 1)) == places
        assert sum_series(server, name, model_name="engine") == 5


def test_other_models_have_no_series(server: Server) -> None:
    tensor = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
    path = "/v2/models/identity_fp32/infer"
    assert server.request_json(path, {"inputs": [tensor]})[0] == 200

    assert 'model_name="identity_fp32"' not in server.metrics_text()


def test_a_killed_process_comes_back_and_counts_anew(server: Server) -> None:
    (pid,) = server.pids()["token_metrics"]
    os.kill(pid, signal.SIGKILL)

    def is_counted() -> bool:
        stream(server, "plain")
        return sum_series(server, _MADE, model_name="plain") > 0

    eventually(lambda: server.pids().get("token_metrics", [pid]) != [pid], 60)
    eventually(is_counted, 60)
