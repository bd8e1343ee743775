"""Commands of `zmqtriton-ctl` that print results, errors and benchmarks, against one server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.shell_completion import BashComplete

from tests.faults.stamps import MODEL, add_version, write_stamp
from tests.standard.ctl.system.commands import ctl, place
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.ctl.main import cli

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[MODEL, "add_sub", "counting", "raising"], load=[MODEL, "add_sub", "counting"]
    ),
]


def prepare(server: Server) -> None:
    write_stamp(server, 1)


def command(server: Server, *words: str) -> list[str]:
    return [sys.executable, "-m", "zmqtriton.ctl.main", place(server), *words]


def document(server: Server, *words: str) -> Any:
    done = ctl(server, *words, "-o", "json")
    # what takes seconds says so meanwhile
    assert [] == [line for line in done.stderr.splitlines() if ", for " not in line]
    assert 0 == done.exit_code
    return json.loads(done.stdout)


@pytest.mark.row("L13")
def test_a_benchmark_has_a_row_for_each_concurrency_and_says_where_the_time_goes(
    server: Server,
) -> None:
    load = ["--zeros", "--seconds=0.3", "--concurrency=1,4"]

    over_http = document(server, "bench", "add_sub", *load, "--processes=2")
    over_grpc = document(server, "bench", "add_sub", "--grpc", *load, "--rate=40")
    streams = document(server, "bench", "counting", "COUNT=3", *load[1:])
    table = ctl(server, "bench", "add_sub", "--random", *load[1:]).stdout.splitlines()

    for report in (over_http, over_grpc, streams):
        assert [1, 4] == [row["concurrency"] for row in report["rows"]]
        for row in report["rows"]:
            assert 0 == row["failed"], row
            assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]
            # of the server's requests, some of which the client does not count
            assert row["queue_ms"] + row["compute_ms"] <= row["p99_ms"]
        assert "of " in report["advice"][-1]
    assert all(row["requests_per_s"] <= 45 for row in over_grpc["rows"])
    assert all(row["first_response_ms"] <= row["p99_ms"] for row in streams["rows"])
    assert ["Clients", "Req/s"] == table[0].split("\t")[:2]
    assert ["1", "4"] == [line.split("\t")[0] for line in table[1:3]]


def test_an_interrupted_benchmark_prints_what_it_has_and_leaves_no_load(server: Server) -> None:
    words = ["bench", "add_sub", "--zeros", "--seconds=60", "--concurrency=2,4", "-o", "json"]
    before = served(server)
    with subprocess.Popen(
        command(server, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bench:
        eventually(lambda: served(server) > before + 500, 60, "it measures")
        bench.send_signal(signal.SIGINT)
        shown, said = bench.communicate(timeout=30)

    assert 0 == bench.returncode
    assert [2] == [row["concurrency"] for row in json.loads(shown)["rows"]]
    assert {"note": "ended by Ctrl-C"} == json.loads(said.splitlines()[-1])


def served(server: Server) -> int:
    _, statistics = server.request_json("/v2/models/add_sub/stats")
    return int(statistics["model_stats"][0]["inference_stats"]["success"]["count"])


@pytest.mark.row("L13")
def test_results_are_documents_where_they_are_asked_for(server: Server) -> None:
    assert {"model": "raising", "result": "loaded"} == document(server, "load", "raising")
    assert {"model": "raising", "result": "unloaded"} == document(server, "unload", "raising")
    assert "restarted" == document(server, "restart", "counting")["result"]
    assert [] == document(server, "reload", "counting")["loaded"]
    drained = ctl(server, "drain", "counting", "--quiet=0", "-o", "json")
    assert "drained" == json.loads(drained.stdout)["state"]
    assert "counting" == document(server, "undrain", "counting")["model"]
    assert document(server, "wait", "add_sub")["ready"] is True
    assert {"1"} == set(document(server, "scale", "add_sub", "1")["versions"])
    assert "add_sub_0_0" == document(server, "stacks", "add_sub")[0]["instance"]
    directory = str(server.directory)
    assert directory in document(server, "repository", "register", directory)["repositories"]
    assert directory not in document(server, "repository", "unregister", directory)["repositories"]
    assert server.pids()["supervisor"][0] in [each["pid"] for each in document(server, "servers")]
    lines = ctl(server, "logs", "--lines=2", "-o", "json").stdout.splitlines()
    assert ["text" in json.loads(line) for line in lines] == [True, True]
    assert ctl(server, "logs", "-n1", "-o", "yaml").stdout.startswith("- number: ")


def test_errors_are_documents_where_results_are(server: Server) -> None:
    refused = ctl(server, "load", "add_subb", "-o", "json")
    missing = ctl(server, "status", "--json", "--server", "no such")

    assert (1, "") == (refused.exit_code, refused.stdout)
    assert "did you mean" in json.loads(refused.stderr)["error"]
    assert 1 == json.loads(refused.stderr)["exit_status"]
    assert 2 == missing.exit_code == json.loads(missing.stderr)["exit_status"]


def test_canaries_are_steered_by_command(server: Server) -> None:
    tried, share = add_version(server), ("--weight", "10")

    assert tried == document(server, "canary", "start", MODEL, str(tried), *share)["canary"]
    assert 20 == document(server, "canary", "weight", MODEL, "20")["weight"]
    assert "x-try: 1" == document(server, "canary", "set", MODEL, "--header=X-Try: 1")["header"]
    assert "serves all requests again" in ctl(server, "canary", "abort", MODEL).stdout
    eventually(
        lambda: document(server, "canary", "status", MODEL)[0]["phase"] == "ABORTED", 30, "its end"
    )
    assert 0 == ctl(server, "canary", "start", MODEL, str(tried), *share).exit_code
    assert tried == document(server, "canary", "promote", MODEL)["canary"]


def test_a_shell_completes_commands_and_models(server: Server) -> None:
    shell = BashComplete(cli, {}, "zmqtriton-ctl", "_ZMQTRITON_CTL_COMPLETE")

    completed = shell.get_completions([place(server), "bench"], "add")

    assert ["add_sub"] == [item.value for item in completed]
    assert "_ZMQTRITON_CTL_COMPLETE" in ctl(server, "completion", "bash").stdout
