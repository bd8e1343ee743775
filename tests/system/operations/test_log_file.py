"""The log file of a server, and the ids of requests in it."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import scripted
from tests.support.scripted import generate
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

# ---------------------------------------------------------------------------- log file
# The log file of `--log-file`, and how logrotate changes it.


def _has(path: Path, pattern: re.Pattern[str]) -> bool:
    return pattern.search(path.read_text()) is not None


#: The last but one has no name in Python 3.10.
_MEAN_NOTHING = {
    "SIGUSR1": signal.SIGUSR1,
    "SIGUSR2": signal.SIGUSR2,
    "SIGALRM": signal.SIGALRM,
    "SIGVTALRM": signal.SIGVTALRM,
    "SIGPROF": signal.SIGPROF,
    "SIGIO": signal.SIGIO,
    "SIGSTKFLT": 16,
    "SIGRTMIN+6": signal.SIGRTMIN + 6,
}


def test_after_sighup_every_process_writes_to_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "zmqtriton.log"
    options = [f"--log-file={path}", "--model-control-mode=explicit", "--log-verbose=1"]
    with Server(tmp_path / "s", ["add_sub"], options=options, frontends=()) as server:
        eventually(lambda: "Started HTTPService" in path.read_text(), 30, "the log")
        path.rename(tmp_path / "rotated.log")

        os.kill(server.pid, signal.SIGHUP)

        eventually(path.exists, 30, "a new file")
        assert 0 == path.stat().st_mode & 0o137
        [worker, *_] = server.pids()["http"][1:]
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: server.pids()["http"][1:] not in ([], [worker]), 30, "another process")
        eventually(server.is_ready, 30, "it serves")
        rotated = (tmp_path / "rotated.log").read_text()
        assert not server.control_model("load", "add_sub")
        loaded = re.compile("successfully loaded 'add_sub'")
        eventually(partial(_has, path, loaded), 30, "the line of the load")
        for pid in server.pids()["http"][1:]:
            eventually(partial(_has, path, re.compile(f" {pid} request_log.py:")), 30, "a line")
        assert rotated == (tmp_path / "rotated.log").read_text()

        # signals that mean nothing are logged, and SIGQUIT ends the server in order
        before = server.pids()
        for number in (*_MEAN_NOTHING.values(), *_MEAN_NOTHING.values()):
            os.kill(server.pid, number)
        for name in _MEAN_NOTHING:
            line = re.compile(f"{re.escape(name)} means nothing to the server and is ignored")
            eventually(partial(_has, path, line), 30, name)
        assert server.is_ready()
        assert before == server.pids()
        os.kill(server.pid, signal.SIGQUIT)
        assert 0 == server.wait(60)
        assert "SIGQUIT has come: the server stops" in path.read_text()


# ------------------------------------------------------------------------- request ids
# The ids of requests in the log: whose request a line is about, however it was written.


_PRINTS = """
    import logging, os, sys, warnings
    print("printed:", text_of(request))
    sys.stderr.write("written\\nin two lines\\n")
    logging.getLogger("own").warning("said by logging")
    pb_utils.Logger.log_info("said by Logger")
    raise ValueError("no such column")
"""


#: Both are between their lines at the same time.
_INTERLEAVED = """
    import asyncio
    print("begins", text_of(request))
    while len(self.kept.setdefault("met", set()) | {text_of(request)}) < 2:
        self.kept["met"].add(text_of(request))
        await asyncio.sleep(0.005)
    self.kept["met"].add(text_of(request))
    print("ends", text_of(request))
    return [reply("through")]
"""


#: Every request is traced, and nobody collects that.
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "scripted",
            Copy(
                "scripted",
                "together",
                scripted.ASYNC + scripted.string_parameter("MAX_INFLIGHT", "2"),
            ),
        ],
        frontends=(),
        options=[
            "--log-format=json",
            *(
                f"--trace-config={each}"
                for each in ("mode=opentelemetry", "rate=1", "level=TIMESTAMPS")
            ),
            "--trace-config=opentelemetry,url=http://127.0.0.1:1/v1/traces",
        ],
    ),
]


@pytest.mark.row("L21")
def test_lines_of_a_model_name_the_requests_that_they_are_about(server: Server) -> None:
    generate(server, "scripted", _PRINTS, "one", id="r-1")
    generate(server, "scripted", 'print("printed without an id")\nreturn [reply("")]')

    [without] = _wait_for(server, "printed without an id")
    texts = ["printed: one", "written", "in two lines", "said by logging", "said by Logger"]
    eventually(lambda: set(texts) <= set(_about(server, "r-1")), 30, "all lines")
    assert texts == [text for text in _about(server, "r-1") if text in texts]
    eventually(lambda: any("no such column" in text for text in _about(server, "r-1")), 30)
    assert "request_id" not in without


def test_lines_of_a_model_have_the_model_and_the_trace_in_fields_of_their_own(
    server: Server,
) -> None:
    generate(server, "scripted", _PRINTS, "two", id="r-2")

    eventually(lambda: any("no such column" in text for text in _about(server, "r-2")), 30)
    records = [one for one in _records(server) if one.get("request_id") == "r-2"]
    by_text = {one["text"].partition(":")[0]: one for one in records}
    error = next(one for one in records if "no such column" in one["text"])
    for one in (by_text["printed"], by_text["said by Logger"], error):
        assert ("scripted", 1, "scripted_0_0") == (one["model"], one["version"], one["instance"])
    assert ("E", 32, 16) == (error["level"], len(error["trace_id"]), len(error["span_id"]))
    assert error["trace_id"] == by_text["said by Logger"]["trace_id"]
    [loaded] = [one for one in _records(server) if one["text"] == "successfully loaded 'together'"]
    assert "together" == loaded["model"]


def test_coroutines_that_print_in_turn_name_their_own_requests(server: Server) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(generate, server, "together", _INTERLEAVED, own_id, id=own_id)
            for own_id in ("left", "right")
        ]
        assert ["through", "through"] == [answer.result() for answer in answers]

    for own_id in ("left", "right"):
        _wait_for(server, f"ends {own_id}")
        assert [f"begins {own_id}", f"ends {own_id}"] == _about(server, own_id)


def _wait_for(server: Server, text: str) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]]:
        return [record for record in _records(server) if text in record["text"]]

    return eventually(look, 30, f"a line with {text}")


def _about(server: Server, own_id: str) -> list[str]:
    return [record["text"] for record in _records(server) if record.get("request_id") == own_id]


def _records(server: Server) -> list[dict[str, Any]]:
    lines = server.log_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
