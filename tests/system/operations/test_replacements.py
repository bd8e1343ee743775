"""A server takes the place of another while clients of every protocol ask: no request fails."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.faults.replacements import clients
from tests.faults.replacements.__main__ import replace_under_load
from tests.faults.replacements.kills import Kill, kill_under_load
from tests.faults.replacements.ways import BySystemd, ByTakeOver, InOneDirectory, OnOnePort, Way
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.control_client.client import ServerSelector, connect, connect_all
from zmqtriton.ctl.main import cli

pytestmark = pytest.mark.system

_FEW = {kind: 1 for kind in clients.CROWD} | {clients.HttpClient: 2, clients.TalkClient: 2}


def replace_once(way: Way, numbers: clients.Crowd, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace a server once under a few clients, of which none fails, and return these."""
    for streaming in (clients.EventsClient, clients.DecoupledClient):
        monkeypatch.setattr(streaming, "count", 8)
    monkeypatch.setattr(clients.TalkClient, "requests", 8)
    # gRPC's clients repeat by themselves what no server has begun; without that they lose a call
    # that they are about to send when they hear that they should go
    monkeypatch.setattr(clients.GrpcClient, "retries", 1)
    way.start()
    try:
        crowd, _ = asyncio.run(replace_under_load(way, 1, numbers, pause_s=1.0))
    finally:
        way.close()

    assert [] == [f"{each.label}: {text}" for each in crowd for _, text in each.failures]
    assert [] == [each.label for each in crowd if not each.right]
    return crowd


def lost_in(crowd: list[Any]) -> int:
    """Return how often clients missed shared memory that they had registered."""
    return sum(each.lost for each in crowd if isinstance(each, clients.SharedMemoryClient))


@pytest.mark.row("D46", "L14", "--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.parametrize("kind", [BySystemd, OnOnePort, InOneDirectory])
def test_a_server_is_replaced_without_a_failed_request(
    tmp_path: Path, kind: type[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path)

    crowd = replace_once(way, _FEW, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert lost_in(crowd) == 0 or kind is not InOneDirectory


@pytest.mark.parametrize(
    "kill", [Kill(True, "it loads its models"), Kill(False, "it has loaded them")], ids=str
)
def test_the_other_server_serves_if_one_is_killed(tmp_path: Path, kill: Kill) -> None:
    way = ByTakeOver(tmp_path)
    way.start()
    try:
        crowd, wrong = asyncio.run(kill_under_load(way, kill, _FEW, pause_s=1.0))
    finally:
        way.close()

    assert [] == wrong
    assert [] == [each.label for each in crowd if not each.right]


def test_a_server_that_cannot_take_over_changes_nothing(tmp_path: Path) -> None:
    way = ByTakeOver(tmp_path)
    way.start()
    [before] = way.servers
    after = way.next()
    model = clients.MODELS[0]
    (after.repository / model / "1" / "model.py").write_text("raise ValueError('broken')\n")
    try:
        after.launch()
        eventually(lambda: after.returncode is not None, 60, "it gives up")
        assert 200 == before.status(f"/v2/models/{model}/ready")
        assert 1 == after.returncode
        assert "leaves" not in before.log_text()
    finally:
        way.close()


def test_the_server_in_a_named_directory_is_found_at_each_moment_of_a_replacement(
    tmp_path: Path,
) -> None:
    way = InOneDirectory(tmp_path)
    selector, seen, is_over = ServerSelector(str(way.runtime)), list[int](), threading.Event()

    def look() -> None:
        while not is_over.is_set():
            with connect(selector) as client:
                seen.append(client.identity.pid)
            time.sleep(0.01)

    way.start()
    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(2):
            way.replace()
    finally:
        is_over.set()
        looking.join()
        way.close()

    pids = [pid_of(server) for server in way.servers]
    assert pids == [pid for pid, _ in itertools.groupby(seen)]
    assert not way.runtime.exists()


@pytest.mark.parametrize("who", ["the old one", "the new one"])
def test_of_two_servers_in_a_directory_one_is_left_when_the_other_is_killed(
    tmp_path: Path, who: str
) -> None:
    way = InOneDirectory(tmp_path)
    way.start()
    [before] = way.servers
    after = way.next()
    way.servers.append(after)
    imports = after.block_imports("add_sub")
    imports.touch()
    after.launch()
    try:
        eventually(lambda: len(pids_in(way.runtime)) == 2, 60, "both are there")
        killed, left = (before, after) if who == "the old one" else (after, before)
        killed.kill()
        assert [pid_of(left)] == pids_in(way.runtime)
        imports.unlink()
        eventually(left.is_ready, 60, "it serves")
        assert [pid_of(left)] == pids_in(way.runtime)
        if left is before:
            way.servers.reverse()
            way.replace()
    finally:
        way.close()

    assert not way.runtime.exists()


def pid_of(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def pids_in(directory: Path) -> list[int]:
    """Return the pids of the servers in a named directory, first of the one that is meant."""
    clients = connect_all(ServerSelector(str(directory)))
    try:
        return [client.call("identity", timeout_s=60)["pid"] for client in clients]
    finally:
        for client in clients:
            client.close()


def test_a_server_that_takes_over_has_what_the_one_before_was_told(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, explicit)
    way.start()
    [before] = way.servers
    try:
        for path, document in (
            ("repository/models/identity_fp32/load", {}),
            ("repository/models/add_sub/unload", {}),
            ("logging", {"log_verbose_level": 1}),
            ("trace/setting", {"trace_rate": "7"}),
        ):
            assert 200 == before.request_json(f"/v2/{path}", document)[0], path
        for command in (["scale", "tokens", "2"], ["drain", "identity_fp32"]):
            arguments = [f"--server={before.pids()['supervisor'][0]}", *command]
            done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
            assert 0 == done.exit_code, done.output
        documents = what_is_told(before)
        assert "drain" in str(documents["models"])
        way.replace()
        assert documents == what_is_told(way.servers[-1])
    finally:
        way.close()

    assert "not taken over" not in way.log_text()
    states = {name: (state, reason) for name, state, reason in documents["models"]}
    assert ("UNAVAILABLE", "unloaded") == states["add_sub"]
    assert ("UNAVAILABLE", "READY") == (states["identity_fp32"][0], states["tokens"][0])
    assert (2, 400) == (documents["instances"], documents["ready"])


def test_what_is_told_while_a_server_takes_over_is_told_to_both(tmp_path: Path) -> None:
    loaded = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, (*loaded, "--grpc-processes=1", "--http-workers=1"))
    way.start()
    [old] = way.servers
    new = way.next()
    way.servers.append(new)
    with ExitStack() as ends:
        ends.callback(way.close)
        waiting = ends.enter_context(ThreadPoolExecutor())
        before, during, after = (ends.enter_context(region(tmp_path.name, n)) for n in "bda")
        assert 200 == old.request_json("/v2/repository/models/sequences/load", {})[0]
        assert 200 == load_with_code(old, "first", "FIRST")
        starts, repeats = new.block_imports("add_sub"), new.block_imports("sequences")
        starts.touch()
        repeats.touch()
        stream = ends.enter_context(begin_stream(old))

        new.launch()
        eventually(lambda: "takes over from" in new.log_text(), 60, "it has the sockets")
        register(old, before)
        starts.unlink()
        eventually(lambda: new.stub_pids("sequences"), 60, "it repeats a load")
        answers = [
            waiting.submit(register, old, during),
            waiting.submit(load_with_code, old, "second", "SECOND"),
        ]
        eventually(lambda: during in regions_of(old), 60, "it is told")
        repeats.unlink()
        eventually(lambda: "leaves" in old.log_text(), 60, "it is told to leave")
        assert [200, 200] == [each.result(60) for each in answers]
        register(new, after)
        with connect(ServerSelector(name=str(old.pids()["supervisor"][0]))) as caller:
            kept = caller.call("regions.status", {"name": ""}, 60)
            caller.call("load", {"model": "identity_fp32"}, 60)

        stream.close()
        assert old.process is not None
        assert 0 == old.process.wait(60), old.log_text()[-3000:]
        assert {before, during, after} == {row["name"] for row in kept}
        assert {before, during, after} == set(regions_of(new))
        assert 200 == new.status("/v2/models/identity_fp32/ready")
        for model, text in (("first", "FIRST"), ("second", "SECOND")):
            assert text == output_of(new, model)
    assert "not taken over" not in way.log_text()
    assert "not done by" not in way.log_text()


def test_sequences_end_where_they_began_and_others_begin_at_the_next_server(
    tmp_path: Path,
) -> None:
    way = ByTakeOver(tmp_path, ("--grpc-processes=1", "--http-workers=1"))
    old = way.next()
    way.servers.append(old)
    keep_sequences(old)
    old.start()
    kinds = (clients.HttpSequenceClient, clients.GrpcSequenceClient, clients.TalkClient)

    async def go_on() -> None:
        began = [kind(way.http_port, way.grpc_port) for kind in kinds]
        waits = [asyncio.Event() for _ in kinds]
        for client, wait in zip(began, waits, strict=True):
            client.pause_between = wait.wait
        tasks = [asyncio.create_task(client.ask()) for client in began]
        await asyncio.to_thread(eventually, lambda: open_sequences(old) == len(kinds), 60)
        next_server = way.next()
        way.servers.append(next_server)
        keep_sequences(next_server)
        next_server.launch()
        await asyncio.to_thread(eventually, lambda: "leaves" in old.log_text(), 120)
        for kind in kinds:
            other = kind(way.http_port, way.grpc_port)
            await asyncio.wait_for(other.ask(), 60)
            await other.close()
        assert old.returncode is None
        for wait in waits:
            wait.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        for client in began:
            await client.close()

    try:
        asyncio.run(go_on())
        assert old.process is not None
        assert 0 == old.process.wait(60), old.log_text()[-3000:]
        counted = way.servers[-1].statistics("sequences")["inference_count"]
        assert len(kinds) * clients.STEPS == counted
    finally:
        way.close()


def open_sequences(server: Server) -> int:
    _, status = server.request_json("/v2/zmqtriton/status")
    return sum(row["sequences"] for row in status["counts"])


def keep_sequences(server: Server) -> None:
    """Have sequences wait for longer than a test takes."""
    config = server.repository / "sequences" / "config.pbtxt"
    text = config.read_text()
    assert "5000000" in text
    config.write_text(text.replace("5000000", "300000000"))


_CONFIG = {
    "backend": "python",
    "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}],
}
_CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        array = np.array(["TEXT"], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for _ in requests]
"""


def load_with_code(server: Server, model: str, text: str) -> int:
    code = base64.b64encode(_CODE.replace("TEXT", text).encode()).decode()
    parameters = {"config": json.dumps(_CONFIG), "file:1/model.py": code}
    path = f"/v2/repository/models/{model}/load"
    return server.request_json(path, {"parameters": parameters})[0]


def output_of(server: Server, model: str) -> str:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}
    _, document = server.request_json(f"/v2/models/{model}/infer", {"inputs": [tensor]})
    return str(document["outputs"][0]["data"][0])


@contextmanager
def region(*words: str) -> Iterator[str]:
    name = f"replacements-{os.getpid()}-{'-'.join(words)}"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(64))
    try:
        yield name
    finally:
        path.unlink()


def register(server: Server, name: str) -> int:
    place = {"key": f"/{name}", "offset": 0, "byte_size": 64}
    status, document = server.request_json(f"/v2/systemsharedmemory/region/{name}/register", place)
    assert status == 200, document
    return status


def regions_of(server: Server) -> list[str]:
    return [row["name"] for row in server.request_json("/v2/systemsharedmemory/status")[1]]


def begin_stream(server: Server) -> HTTPResponse:
    """Begin what keeps a server that leaves for longer than a test takes."""
    body = json.dumps({"COUNT": 1_000_000, "DELAY_US": 50_000}).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/tokens/generate_stream", body)
    response = urllib.request.urlopen(request, timeout=60)
    assert isinstance(response, HTTPResponse)
    assert response.readline().startswith(b"data:")
    return response


def what_is_told(server: Server) -> dict[str, Any]:
    """Return what a server says of all that it was told while it ran."""
    _, index = server.request_json("/v2/repository/index", {})
    models = [(one["name"], one.get("state"), one.get("reason")) for one in index]
    return {
        "models": sorted(each for each in models if each[1]),
        "log": server.request_json("/v2/logging")[1],
        "trace": server.request_json("/v2/trace/setting")[1],
        "instances": len(server.stub_pids("tokens")),
        "ready": server.status("/v2/models/identity_fp32/ready"),
    }


def _replace(way: ByTakeOver, *words: str) -> Any:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", str(way.http_port)]
    return subprocess.run(
        [*command, "replace", *words], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_server_is_replaced_by_a_command(tmp_path: Path) -> None:
    way = InOneDirectory(tmp_path)
    way.start()
    [server] = way.servers
    before = pid_of(server)
    try:
        refused = _replace(way, "--", "--model-repository=nowhere", f"--http-port={way.http_port}")
        assert (1, [before]) == (refused.returncode, pids_in(way.runtime))
        assert "the running server goes on:\nfailed to stat file nowhere" in refused.stderr

        imports = server.repository / "add_sub" / "1" / "model.py"
        text = imports.read_text()
        imports.write_text(f"{text}\nraise ValueError('no weights')\n")
        refused = _replace(way)
        assert (1, [before]) == (refused.returncode, pids_in(way.runtime))
        assert "the running server goes on" in refused.stderr
        assert "no weights" in refused.stderr

        imports.write_text(f"import time\ntime.sleep(60)\n{text}")
        refused = _replace(way, "--timeout=3")
        assert (1, [before]) == (refused.returncode, pids_in(way.runtime))
        assert 200 == server.status("/v2/models/add_sub/ready")

        imports.write_text(text)
        done = _replace(way, "-o", "json")
        assert 0 == done.returncode, done.stderr
        answer = json.loads(done.stdout)
        assert before == answer["before"]
        assert server.process is not None
        assert 0 == server.process.wait(60)
        assert [answer["pid"]] == pids_in(way.runtime)
        assert server.is_ready()
        os.kill(answer["pid"], signal.SIGTERM)
        eventually(lambda: not way.runtime.exists(), 60, "it has ended")
    finally:
        way.close()


def test_a_new_server_whose_predecessor_is_killed_serves_all_the_same(tmp_path: Path) -> None:
    way = InOneDirectory(tmp_path)
    way.start()
    [server] = way.servers
    before = pid_of(server)
    imports = server.block_imports("add_sub")
    imports.touch()
    pids = [before]
    try:
        with ThreadPoolExecutor() as threads:
            running = threads.submit(_replace, way)
            eventually(lambda: len(pids_in(way.runtime)) == 2, 60, "both are there")
            pids = pids_in(way.runtime)
            server.kill()
            done = running.result()
        assert 1 == done.returncode
        assert f"the running server has ended; pid {pids[1]} serves when" in done.stderr
        assert pids[1:] == pids_in(way.runtime)
        imports.unlink()
        eventually(server.is_ready, 60, "it serves")
    finally:
        for pid in pids[1:]:
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not way.runtime.exists(), 60, "it has ended")
        way.close()
