"""Profiles of models that a real server serves, by the operator's command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

CONFIG = """
backend: "python"
input [ { name: "HOW" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
#: Executes until the file is there; each way to spend time stands on lines of its own.
CODE = """
import ctypes
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

END = {end!r}


def goes_on():
    return not os.path.exists(END)


class TritonPythonModel:
    def initialize(self, args):
        self.seen = np.random.rand(1 << 20)
        threading.Thread(target=self.watch, name="watcher", daemon=True).start()

    def watch(self):
        while True:
            time.sleep(60)

    def execute(self, requests):
        how = pb_utils.get_input_tensor_by_name(requests[0], "HOW").as_numpy().flat[0].decode()
        getattr(self, how)()
        answer = pb_utils.Tensor("Y", np.ones(1, np.float32))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]

    def at_once(self):
        pass

    def compute(self):
        while goes_on():
            np.sort(self.seen)  # in C

    def count(self):
        while goes_on():
            for _ in range(20):
                sum(number * number for number in range(5000))  # in Python

    def wait(self):
        while goes_on():
            time.sleep(0.5)  # waits

    def in_threads(self):
        threads = [threading.Thread(target=self.compute, name="helper") for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # waits for helpers

    def await_lock(self):
        holds, lock = threading.Event(), threading.Lock()
        threading.Thread(target=self.hold, args=(holds, lock), name="holder").start()
        holds.wait()
        with lock:  # waits for the lock
            pass

    def hold(self, holds, lock):
        with lock:
            holds.set()
            while goes_on():
                time.sleep(0.1)  # holds the lock

    def hang(self):
        ctypes.PyDLL(None).sleep(1000)  # keeps the lock
"""
ASYNC_CODE = """
import asyncio
import os

import numpy as np
import triton_python_backend_utils as pb_utils

END = {end!r}


class TritonPythonModel:
    async def execute(self, requests):
        while not os.path.exists(END):
            await self.fetch()
        answer = pb_utils.Tensor("Y", np.ones(1, np.float32))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]

    async def fetch(self):
        await asyncio.sleep(0.3)  # awaits
"""
MANY = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}\n'


def line_of(comment: str, code: str = CODE) -> int:
    return next(n for n, text in enumerate(code.splitlines(), 1) if text.endswith(f"# {comment}"))


class Profiled:
    """A server whose models work until they are told to end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.end = server.scratch / "end"

    @contextmanager
    def working(self, model: str, how: str, times: int = 1, **more: Any) -> Iterator[None]:
        with ThreadPoolExecutor(times) as pool:
            requests: list[Future[Any]] = [
                pool.submit(
                    self.server.infer_json,
                    model,
                    tensor("HOW", "BYTES", [how]),
                    within_s=300,
                    **more,
                )
                for _ in range(times)
            ]
            try:
                yield
            finally:
                self.end.touch()
            assert [200] * times == [request.result()[0] for request in requests]
        self.end.unlink()

    def profile(self, model: str, *words: str, seconds: float = 1) -> dict[str, Any]:
        shown = ctl(self.server, "profile", model, "--seconds", str(seconds), "--json", *words)
        assert 0 == shown.exit_code, shown.stderr
        return json.loads(shown.stdout)

    def first_line(self, model: str, *words: str) -> dict[str, Any]:
        """Return the line with the most time, once the request has reached the model."""

        def look() -> dict[str, Any] | None:
            seen = self.profile(model, *words)
            line: dict[str, Any] = seen["lines"][0] if seen["lines"] else {}
            is_there = line and sum(line[name] for name in line if name.endswith("_seconds"))
            return line if is_there and is_there > 0.5 * seen["seconds"] else None

        return eventually(look, 60, "a line of the model")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profiled]:
    directory = tmp_path_factory.mktemp("profiles")
    server = Server(
        directory / "server", options=[f"--runtime-directory={directory}/run"], frontends=()
    )
    end = str(server.scratch / "end")
    code = CODE.format(end=end)
    server.write_model("plain", CONFIG, code)
    server.write_model("stuck", CONFIG, code)
    two = CONFIG.replace("count: 1", "count: 2")
    server.write_model("threads", two + MANY.format("INSTANCES", "threads"), code)
    server.write_model("forks", two + MANY.format("INSTANCES", "forks"), code)
    server.write_model(
        "awaiting", CONFIG + MANY.format("MAX_INFLIGHT", "8"), ASYNC_CODE.format(end=end)
    )
    with server:
        yield Profiled(server)


def test_the_lines_where_a_model_computes_are_named(place: Profiled) -> None:
    def computing() -> dict[str, Any] | None:
        # where a busy machine keeps it waiting for a processor, it is looked at again
        line: dict[str, Any] = place.first_line("plain")
        computes = line["c_seconds"] > line["python_seconds"] + line["waits_seconds"]
        return line if computes else None

    with place.working("plain", "compute"):
        line = eventually(computing, 60)

    assert (line_of("in C"), "TritonPythonModel.compute") == (line["line"], line["function"])
    assert line["file"].endswith("models/plain/1/model.py")
    assert line["c_seconds"] > line["python_seconds"] + line["waits_seconds"]
    assert "sort" == line["below"]["function"]


def test_python_is_told_from_c_and_from_waiting(place: Profiled) -> None:
    with place.working("plain", "count"):
        counting = place.first_line("plain")
    with place.working("plain", "wait"):
        waiting = place.first_line("plain")

    assert line_of("in Python") == counting["line"]
    assert counting["python_seconds"] > 2 * (counting["c_seconds"] + counting["waits_seconds"])
    assert line_of("waits") == waiting["line"]
    assert waiting["waits_seconds"] > 2 * (waiting["c_seconds"] + waiting["python_seconds"])


def test_threads_of_the_model_count_with_what_they_compute(place: Profiled) -> None:
    with place.working("plain", "in_threads"):
        eventually(
            lambda: any(
                line_of("in C") == line["line"] and line["c_seconds"] > 0.5
                for line in place.profile("plain")["lines"]
            ),
            60,
        )
        lines = {line["line"]: line for line in place.profile("plain")["lines"]}

    assert line_of("waits for helpers") in lines
    assert "watch" not in {line["function"].rpartition(".")[2] for line in lines.values()}


def test_who_holds_a_lock_is_named_beside_the_line_that_waits_for_it(place: Profiled) -> None:
    with place.working("plain", "await_lock"):
        waiting = place.first_line("plain")
        others = place.profile("plain")["other_threads"]
        shown = ctl(place.server, "profile", "plain", "--seconds", "1").stdout

    assert line_of("waits for the lock") == waiting["line"]
    assert ("holder", line_of("holds the lock")) in [(one["thread"], one["line"]) for one in others]
    assert "one may hold a lock that a request waits for" in shown
    assert f"1/model.py:{line_of('holds the lock')}\tTritonPythonModel.hold\tholder" in shown


def test_an_idle_model_waits_for_requests(place: Profiled) -> None:
    shown = ctl(place.server, "profile", "plain", "--seconds", "0.5")

    assert 0 == shown.exit_code, shown.stderr
    assert "0% busy, 100% waiting for requests" in shown.stdout
    assert "No line of the model's own was met." in shown.stdout


def test_coroutines_are_seen_where_they_await(place: Profiled) -> None:
    with place.working("awaiting", "", times=3):
        line = place.first_line("awaiting")

    assert line_of("awaits", ASYNC_CODE) == line["line"]
    assert "TritonPythonModel.fetch" == line["function"]
    assert line["awaits_seconds"] > 0.5


def test_only_the_request_with_the_id_is_counted(place: Profiled) -> None:
    with place.working("plain", "wait", id="mine"):
        line = place.first_line("plain", "--request", "mine")
        other = ctl(place.server, "profile", "plain", "--seconds", "0.3", "--request", "other")

    assert line_of("waits") == line["line"]
    assert (
        1,
        "error: in 0.3 s nothing was seen of request 'other': send requests meanwhile\n",
    ) == (
        other.exit_code,
        other.stderr,
    )


@pytest.mark.parametrize("model", ["threads", "forks"])
def test_instances_of_every_kind_are_profiled(place: Profiled, model: str) -> None:
    with place.working(model, "wait", times=2):
        line = place.first_line(model)
        one = place.profile(model, "--instance", "1", seconds=0.3)

    assert line_of("waits") == line["line"]
    assert [f"{model}_0_1"] == one["instances"]


def test_files_for_other_programs_are_written(place: Profiled, tmp_path: Path) -> None:
    files = [tmp_path / f"plain.{end}" for end in ("svg", "speedscope.json", "pb.gz")]
    with place.working("plain", "wait"):
        place.first_line("plain")
        for file in files:
            shown = ctl(place.server, "profile", "plain", "--seconds", "0.5", "-o", str(file))
            assert 0 == shown.exit_code, shown.stderr
            assert "model.py" in shown.stdout

    svg, speedscope, pprof = (file.read_bytes() for file in files)
    assert f"model.py:{line_of('waits')}" in svg.decode()
    ElementTree.fromstring(svg)
    assert "MainThread" in [one["name"] for one in json.loads(speedscope)["profiles"]]
    assert pprof.startswith(b"\x1f\x8b")
    wrong = ctl(place.server, "profile", "plain", "-o", "x.png")
    assert 2 == wrong.exit_code
    assert "'x.png' is none of table, json, yaml, FILE.svg" in wrong.stderr


def test_the_log_tells_of_the_profile_and_has_no_stack(place: Profiled) -> None:
    place.profile("plain", seconds=0.2)
    shown = ctl(place.server, "stacks", "plain")

    assert "most recent call first" in shown.stdout
    log = place.server.log_text()
    assert "profile 'plain' {" in log
    assert "stacks 'plain' for process" in log
    assert "most recent call first" not in log


def test_a_model_that_keeps_the_lock_is_found_by_its_stacks(place: Profiled) -> None:
    """Of it no thread can run Python, so that it can neither be asked nor profiled."""
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(
            place.server.infer_json, "stuck", tensor("HOW", "BYTES", ["hang"]), within_s=300
        )
        try:
            shown = eventually(
                lambda: (
                    text
                    if "in hang" in (text := ctl(place.server, "stacks", "stuck").stdout)
                    else ""
                ),
                60,
            )
            refused = ctl(place.server, "profile", "stuck", "--seconds", "0.1")
        finally:
            ctl(place.server, "restart", "stuck")
        hung.result()

    assert f'model.py", line {line_of("keeps the lock")} in hang' in shown
    assert 1 == refused.exit_code
    assert "'stuck_0_0' has not answered: its Python stands still" in refused.stderr


def test_a_profile_over_http_is_for_those_who_may_restart_a_model(
    place: Profiled, tmp_path: Path
) -> None:
    path = "/v2/models/plain/profile"
    assert 403 == place.server.request_json(path, {"seconds": 0.2})[0]

    options = [
        "--http-restricted-api=steering:x-key=secret",
        f"--runtime-directory={tmp_path}/run",
    ]
    with Server(tmp_path / "server", ["add_sub"], options=options, frontends=()) as guarded:
        path, key = "/v2/models/add_sub/profile", {"x-key": "secret"}
        refused = guarded.exchange(path, b"{}")
        files = [
            guarded.exchange(path, json.dumps({"seconds": 0.2, "form": form}).encode(), key)
            for form in ("svg", "speedscope", "pprof")
        ]
        wrong = [
            guarded.exchange(path, body, key)
            for body in (b'{"form": "png"}', b'{"form": 1}', b'{"seconds": -1}', b"[]")
        ]

        assert 403 == refused.status
        with ThreadPoolExecutor(1) as pool:
            file = pool.submit(guarded.exchange, path, b'{"seconds": 2, "form": "speedscope"}', key)
            while not file.done():
                assert 0 == ctl(guarded, "infer", "add_sub", "--zeros").exit_code
            frames = json.loads(file.result().body)["shared"]["frames"]

        # no directories of the server
        assert frames
        assert [] == [frame["file"] for frame in frames if frame["file"].startswith("/")]
        assert [200] * 3 == [file.status for file in files]
        assert b"<svg" in files[0].body
        assert "add_sub" == json.loads(files[1].body)["name"]
        assert files[2].body.startswith(b"\x1f\x8b")
        assert [400] * 4 == [each.status for each in wrong]
        assert b"form must be one of svg, speedscope, pprof" in wrong[0].body
        assert "profile 'add_sub' {" in guarded.log_text()
