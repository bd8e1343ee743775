"""The log of a real server as a collector gets it."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.receivers.logs_collector import LogsCollector
from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "WORDS").as_numpy()[0].decode()
            pb_utils.Logger.log_warn(f"heard {text}")
            print(f"printed {text}", flush=True)
            answers.append(pb_utils.InferenceResponse([]))
        return answers
"""
_CONFIG = 'backend: "python"\ninput [ { name: "WORDS" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
_CONFIG += 'output [ { name: "NONE" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_LINES = "zmqtriton_otlp_log_lines_total"


@pytest.fixture
def collector() -> Iterator[LogsCollector]:
    with LogsCollector() as collector:
        yield collector


class TalkingServer(Server):
    def __init__(self, directory: Path, collector: LogsCollector) -> None:
        settings = ("mode=opentelemetry", "rate=0", "level=TIMESTAMPS")
        options = [f"--trace-config={setting}" for setting in settings]
        base = collector.url.removesuffix("/v1/logs")
        super().__init__(directory, ["identity_fp32"], options=[*options, f"--otlp-logs={base}"])
        code = self.repository / "talker" / "1" / "model.py"
        code.parent.mkdir(parents=True)
        code.write_text(_MODEL)
        (self.repository / "talker" / "config.pbtxt").write_text(_CONFIG)

    def __enter__(self) -> TalkingServer:
        super().__enter__()
        return self

    def say(self, text: str, **headers: str) -> None:
        form = f'{{"inputs":[{{"name":"WORDS","shape":[1],"datatype":"BYTES","data":["{text}"]}}]}}'
        request = urllib.request.Request(
            f"{self.url}/v2/models/talker/infer", form.encode(), headers
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert 200 == answer.status


def test_a_collector_gets_the_log_with_models_severities_and_traces(
    tmp_path: Path, collector: LogsCollector
) -> None:
    with TalkingServer(tmp_path, collector) as server:
        server.say("one", traceparent=f"00-{_TRACE}-{_SPAN}-01")
        heard = eventually(lambda: collector.find("heard one"), 60)
        printed = eventually(lambda: collector.find("printed one"), 60)
        begun = eventually(lambda: collector.find("successfully loaded 'talker'"), 60)
        resource = collector.resources[0]

        assert ("WARN", 13, _TRACE) == (heard.severity, heard.severity_number, heard.trace_id)
        assert "talker" == heard.attributes["triton.model_name"]
        assert 1 == heard.attributes["triton.model_version"]
        assert "talker" == printed.attributes["triton.model_name"]
        assert ("INFO", "") == (begun.severity, begun.trace_id)
        assert resource["service.instance.id"].endswith(f":{server.metrics_port}")
        assert sum_series(server, _LINES, result="accepted") >= 3
        assert 0 == sum_series(server, _LINES, result="dropped")


def test_an_outage_and_a_killed_process_lose_no_line_and_send_none_twice(
    tmp_path: Path, collector: LogsCollector
) -> None:
    with TalkingServer(tmp_path, collector) as server:
        server.say("one")
        eventually(lambda: collector.find("heard one"), 60)
        # the process has the answers, too, and would send nothing of it again
        count = len(collector.records)
        eventually(lambda: sum_series(server, _LINES, result="accepted") >= count, 60)
        collector.close()
        server.say("two")
        (pid,) = server.pids()["otlp_logs"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.pids().get("otlp_logs", [pid]) != [pid], 60)
        server.say("three")
        collector.open()
        eventually(lambda: collector.find("heard three"), 90)
        server.say("last")

    texts = [record.text for record in collector.records]
    for word in ("one", "two", "three"):
        assert 1 == sum(f"heard {word}" in text for text in texts)
