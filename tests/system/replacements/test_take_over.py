"""A server takes over what another one has: its sequences, and what it was told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.faults.replacements import clients
from tests.faults.replacements.ways import ByTakeOver
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.replacements.replacing import SMALL, begin_stream, load_with_code, output_of
from zmqtriton.control_client import ServerSelector, connect
from zmqtriton.ctl.main import cli
from zmqtriton.options import parse
from zmqtriton.start import predecessors
from zmqtriton.start.listeners import PortError

pytestmark = pytest.mark.system


def test_a_server_that_takes_over_has_what_the_one_before_was_told(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, (*explicit, *SMALL))
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
            arguments = [f"--server=pid:{before.pids()['supervisor'][0]}", *command]
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


def test_a_server_with_a_port_for_its_name_is_no_predecessor(tmp_path: Path) -> None:
    """As is one whose pid is that number."""
    way = ByTakeOver(tmp_path, SMALL)
    options = [f"--id={way.http_port}", *SMALL]
    with Server(tmp_path / "other", ["identity_fp32"], options=options) as other:
        try:
            way.start()
            way.replace()
        finally:
            way.close()
        assert other.returncode is None


@pytest.mark.long(
    "system/replacements/test_take_over.py::test_a_server_that_takes_over_has_what_the_one_before_was_told",
    "supervisor/control/test_succession.py::test_what_is_told_after_it_has_asked_is_told_before_the_answer",
    "supervisor/control/test_succession.py::test_regions_are_of_both_until_the_old_server_has_ended",
    "supervisor/control/test_succession.py::test_a_load_that_was_under_way_when_it_asked_goes_over",
)
def test_what_is_told_while_a_server_takes_over_is_told_to_both(tmp_path: Path) -> None:
    loaded = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, (*loaded, *SMALL))
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
        assert 0 == old.wait(60), old.log_text()[-3000:]
        assert {before, during, after} == {row["name"] for row in kept}
        assert {before, during, after} == set(regions_of(new))
        assert 200 == new.status("/v2/models/identity_fp32/ready")
        for model, text in (("first", "FIRST"), ("second", "SECOND")):
            assert text == output_of(new, model)
    assert "not taken over" not in way.log_text()
    assert "not done by" not in way.log_text()


@pytest.mark.long(
    "frontends/grpc_api/transport/test_leaving.py::test_a_client_is_told_to_go_when_its_sequence_has_ended",
    "frontends/grpc_api/transport/test_leaving.py::test_a_sequence_that_begins_before_a_client_has_heard_is_left_to_the_next_server",
    "supervisor/server_processes/test_shutdown.py::test_frontends_end_when_no_sequence_is_open_any_more",
)
def test_sequences_end_where_they_began_and_others_begin_at_the_next_server(
    tmp_path: Path,
) -> None:
    way = ByTakeOver(tmp_path, SMALL)
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
        for kind in kinds * 2:
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
        assert 0 == old.wait(60), old.log_text()[-3000:]
        counted = way.servers[-1].statistics("sequences")["inference_count"]
        # the first ones may have come before the old frontends had heard
        assert counted in (len(kinds) * 2 * clients.STEPS - n * clients.STEPS for n in range(4))
    finally:
        way.close()


def open_sequences(server: Server) -> int:
    _, status = server.request_json("/v2/zmqtriton/status")
    return sum(row["sequences"] for row in status["counts"])


def keep_sequences(server: Server) -> None:
    """Have sequences wait for longer than a test takes."""
    server.edit_config("sequences", "microseconds: 20000000", "microseconds: 300000000")


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


def test_a_server_that_hangs_is_called_so_by_the_one_that_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessors, "_WITHIN_S", 0.5)
    with Server(tmp_path / "s", ["identity_fp32"], options=SMALL) as server:
        (pid,) = server.pids()["supervisor"]
        words = [f"--http-port={server.http_port}", "--take-over"]
        options = parse([f"--model-repository={server.repository}", *words])
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(PortError) as refusal:
                predecessors.find(options)
        finally:
            os.kill(pid, signal.SIGCONT)

    text = str(refusal.value)
    assert f"port {server.http_port} is in use, and the old server in " in text
    assert "does not answer: timed out" in text
