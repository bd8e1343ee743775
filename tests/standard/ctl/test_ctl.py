"""The status, errors and `env` of `zmqtriton-ctl` against a server that a test plays."""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.standard.ctl.fake_server import STATUS, FakeServer, run
from tests.support.reports import Reports
from zmqtriton.control_client import NoServerError, ServerSelector
from zmqtriton.ctl.main import cli
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_standard.ctl import tables
from zmqtriton_standard.ctl.output import print_document
from zmqtriton_standard.ctl.selecting import move_to_front, parse_server
from zmqtriton_standard.environments.cache import BUILT, EnvironmentCache


def words_of(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_the_status_tells_which_models_are_not_ready_and_why(server: FakeServer) -> None:
    server.answers["index"] = [
        {"name": "well", "version": "1", "state": "READY"},
        {
            "name": "wrong",
            "version": "3",
            "state": "UNAVAILABLE",
            "reason": "Error: x\n\nAt:\n  y\n",
        },
        {
            "name": "gone",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "not loaded: unloaded after 60 s without requests",
            "why": {"kind": "IDLE", "values": {"idle_s": 60}, "text": "not loaded"},
        },
        {"name": "never_asked_for"},
    ]

    lines = run("status").stdout.splitlines()

    # What is no terminal gets one line for each row, whatever the reason has.
    shown = [line.split() for line in lines]
    first = shown.index(["Not", "ready", "Version", "State", "Reason"])
    assert [["wrong", "3", "UNAVAILABLE", "Error:", "x", "At:", "y"], []] == shown[first + 1 :][:2]


def test_a_table_without_rows_is_left_out(server: FakeServer) -> None:
    on_demand = {"waiting": {}, "models": [], "budget_bytes": 0, "gpus": []}
    server.answers["status"] = {**STATUS, "on_demand": on_demand}

    assert "On demand" not in run("status").stdout


def test_the_status_shows_what_a_model_has_chosen(server: FakeServer) -> None:
    counts = {key: 1 for key in ("version", "succeeded", "failed", "pending", "executions")}
    batching = {"target": 8, "delay_us": 3100}
    chosen = {**batching, "auto": "p99 80 ms"}
    rows = [
        {"model": name, **counts, **of}
        for name, of in (("m", {"batching": chosen}), ("fixed", {"batching": batching}), ("no", {}))
    ]
    server.answers["status"] = {**STATUS, "counts": rows}

    shown = words_of(run("status"))

    first = shown.index(["Batches", "of", "Target", "Chosen", "delay", "Size"])
    assert [["m:1", "p99", "80", "ms", "3.1", "ms", "8"]] == shown[first + 1 :]


def test_a_status_without_a_broker_says_so(server: FakeServer) -> None:
    server.answers["status"] = {**STATUS, "counts": None}

    table = run("status")

    assert table.exit_code == 0
    assert "the broker has not answered in time" in table.stderr


def test_a_load_and_an_unload_name_the_model(server: FakeServer) -> None:
    server.answers["index"] = [{"name": "m"}]
    assert run("load", "m").output == "loaded m\n"
    assert run("unload", "m", "--dependents").output == "unloaded m\n"

    assert [
        ("load", {"model": "m", "parameters": {}}),
        ("index", {"ready": False}),
        ("unload", {"model": "m", "unload_dependents": True}),
    ] == server.calls


def test_a_load_that_found_no_change_says_so(server: FakeServer) -> None:
    server.answers["load"] = "unchanged"

    assert run("load", "m").output == "m has not changed and serves on as it is\n"
    assert json.loads(run("load", "m", "-o", "json").output)["result"] == "unchanged"


def test_a_refusal_is_status_1(server: FakeServer) -> None:
    server.answers["load"] = InvalidArgument("load failed for model 'm'")
    server.answers["index"] = [{"name": "m"}]

    refused = run("load", "m")

    assert refused.exit_code == 1
    assert refused.stderr == "error: load failed for model 'm'\n"


def test_no_server_names_a_few_old_directories(temporary: Path) -> None:
    for number in range(9):
        (temporary / f"zmqtriton-{number}").mkdir()

    said = run("status").stderr

    assert (3, True) == (said.count("there is none"), said.endswith(", 6 older ones\n"))


def test_who_may_write_nowhere_is_answered_too(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)

    finished = run("--runtime-directory", str(temporary), "status")

    assert 2 == finished.exit_code
    assert f"error: no running server found in {temporary} (there is none)" in finished.stderr


def test_a_path_that_no_socket_can_have_is_told(temporary: Path) -> None:
    path = f"{temporary}/{'x' * 150}"

    finished = run("--runtime-directory", path, "status")

    assert f"error: no running server found in {path} (AF_UNIX path too long)\n" == finished.stderr


def test_the_newest_server_that_lives_is_asked(temporary: Path, several: list[FakeServer]) -> None:
    with ServerSelector().connect() as client:
        assert client.directory == temporary / "zmqtriton-new"


def test_who_is_told_of_one_server_among_several_is_told_which(several: list[FakeServer]) -> None:
    shown = run("status")

    assert shown.exit_code == 0
    assert shown.stdout.startswith("'new'")
    assert (
        "2 servers run; this is 'new' (pid 70, http 0.0.0.0:8000). "
        "Others by --server, see `zmqtriton-ctl servers`.\n"
    ) == shown.stderr


@pytest.mark.parametrize(("name", "meant"), [("pid:8001", "'new'"), (":8001", "'old'")])
def test_a_pid_that_is_another_servers_port_is_told_apart(
    several: list[FakeServer], name: str, meant: str
) -> None:
    several[0].answers["status"]["processes"][0]["pid"] = 8001

    refused, shown = run("--server", "8001", "status"), run("--server", name, "status")

    assert refused.exit_code == 2
    assert "2 servers are called '8001', so name its pid, as pid:N; running" in refused.stderr
    assert (shown.exit_code, shown.stdout[:5]) == (0, meant)


def test_of_two_servers_in_a_named_directory_a_port_means_the_one_that_serves(
    temporary: Path,
) -> None:
    named = temporary / "named"
    named.mkdir()
    servers = [FakeServer(named / str(number)) for number in (1, 2)]
    (named / "ctl").symlink_to("2/ctl")
    servers[1].answers["status"] = {**STATUS, "server": {**STATUS["server"], "id": "new"}}

    shown = run("--runtime-directory", str(named), "--server", ":8000", "status")
    for server in servers:
        server.close()

    assert (shown.exit_code, shown.stdout[:5]) == (0, "'new'"), shown.stderr


def test_of_many_servers_three_are_named(temporary: Path, several: list[FakeServer]) -> None:
    for number in range(3):
        server = FakeServer(temporary / f"zmqtriton-{number}")
        server.answers["status"] = {**STATUS, "server": {**STATUS["server"], "id": f"s{number}"}}
        several.append(server)

    finished = run("--server", "nobody", "status")

    assert 3 == finished.stderr.count("(pid ")
    assert finished.stderr.endswith(" and 2 more, see `zmqtriton-ctl servers`\n")


def test_servers_of_others_are_named_to_who_may_not_ask_them(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / "zmqtriton-1").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)

    finished = run("status")

    owner = pwd.getpwuid(os.getuid()).pw_name
    assert f"{owner} may have one: ask as that user or as root" in finished.stderr


def test_a_server_is_named_by_option_or_environment(
    temporary: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--runtime-directory", str(temporary / "zmqtriton-1"), "status").exit_code == 0
    assert run("--runtime-directory", "/nowhere", "status").exit_code == 2

    monkeypatch.setenv("RUNTIME_DIRECTORY", "/nowhere")
    with pytest.raises(NoServerError, match="/nowhere"):
        ServerSelector().connect()


@pytest.mark.row("L13")
@pytest.mark.addons
def test_each_list_is_a_table_json_or_yaml(server: FakeServer) -> None:
    server.answers["index"] = [{"name": "m", "version": "1", "state": "READY"}]

    table, as_json = run("models"), run("models", "-o", "json")
    as_yaml = run("models", "--output=yaml", "--server=http://127.0.0.1:8000")

    assert ["m", "1", "READY"] == words_of(table)[1]
    assert server.answers["index"] == json.loads(as_json.stdout)
    assert as_json.stdout == run("models", "--json").stdout
    assert '- name: m\n  version: "1"\n  state: READY\n' == as_yaml.stdout
    for words in (["status"], ["servers"], ["explain"]):
        assert json.loads(run(*words, "-o", "json").stdout) is not None
        assert run(*words, "-o", "yaml").exit_code == 0
    assert "Invalid value for '-o'" in run("models", "-o", "xml").stderr


@pytest.mark.addons
def test_a_shell_completes_commands_and_models(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["index"] = [{"name": "resnet"}, {"name": "other"}]

    def complete(words: str) -> list[str]:
        environment = {
            "_ZMQTRITON_CTL_COMPLETE": "bash_complete",
            "COMP_WORDS": f"zmqtriton-ctl {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        result = CliRunner().invoke(cli, [], prog_name="zmqtriton-ctl", env=environment)
        return [line.partition(",")[2] for line in result.stdout.splitlines()]

    assert ["explain"] == complete("expl")
    assert ["resnet"] == complete("explain res")
    assert ("index", {"ready": False}) in server.calls, "one that is not ready, above all"
    for shell in ("bash", "zsh", "fish"):
        assert "_ZMQTRITON_CTL_COMPLETE" in run("completion", shell).stdout


@pytest.mark.addons
def test_the_doctor_judges_a_server_that_is_older_than_itself(server: FakeServer) -> None:
    server.answers["options"] = ValueError("unknown control call 'options'")

    done = run("doctor", "-o", "json")

    texts = [finding["text"] for finding in json.loads(done.stdout)]
    assert any(text.startswith("the server is zmqtriton 1.2.3, and this") for text in texts)


@pytest.mark.parametrize(("variable", "is_coloured"), [("", True), ("1", False)])
def test_no_color_is_respected(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, variable: str, is_coloured: bool
) -> None:
    """Asked of a terminal by `color=True`; NO_COLOR takes it back."""
    monkeypatch.setenv("NO_COLOR", variable)
    server.answers["index"] = [{"name": "m", "version": "1", "state": "READY"}]
    # Not the function itself: a module that is imported meanwhile would keep the other one.
    monkeypatch.setattr(tables, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))

    assert is_coloured is ("\x1b[" in CliRunner().invoke(cli, ["models"], color=True).output)


# ------------------------------------------------------------------- selecting


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("status m --server alpha --json", "--server alpha status m --json"),
        ("logs --server=8000 -f", "--server=8000 logs -f"),
        ("--server a models --runtime-directory /d", "--server a --runtime-directory /d models"),
        ("infer m -- --server=x", "infer m -- --server=x"),
        ("models --server", "--server models"),
    ],
)
def test_the_server_may_stand_behind_the_command(words: str, expected: str) -> None:
    assert expected.split() == move_to_front(words.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha", "alpha"),
        ("8000", "8000"),
        ("pid:8000", "pid:8000"),
        (":8000", ":8000"),
        ("localhost:8000", ":8000"),
        ("http://127.0.0.1:8000/", ":8000"),
        ("http://[::1]:8001", ":8001"),
        (f"http://{socket.gethostname()}:8002/v2", ":8002"),
    ],
)
def test_a_url_names_a_server_by_its_port(text: str, expected: str) -> None:
    assert expected == parse_server(click.Context(cli), cli.params[0], text)


@pytest.mark.parametrize("text", ["http://elsewhere:8000", "http://localhost", "localhost:x"])
def test_a_url_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_server(click.Context(cli), cli.params[0], text)


# ------------------------------------------------------------------- output


DOCUMENTS: dict[str, Any] = {
    "nested": {"a": [1, 2.5, {"b": None, "c": [True, []]}], "d": {}, "e": [[1], [2]]},
    "texts": ["plain", "no", "1.0", "a: b", "two\nlines", "- x", "", "caf\u00e9", "~", "#"],
    "letters": ["\U0001f600 \\ud83d", "\x85\x7f\u2028", '"\\'],
    "keys": {"with space": 1, "yes": 2, "1": 3},
    "empty": [],
    "scalar": 3,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_yaml_is_read_back_as_it_was(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = pytest.importorskip("yaml")

    print_document("yaml", DOCUMENTS[name])

    assert DOCUMENTS[name] == yaml.safe_load(capsys.readouterr().out)


def test_yaml_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_document("yaml", [{"name": "m", "state": "READY", "sizes": [1, 2]}])

    assert "- name: m\n  state: READY\n  sizes:\n    - 1\n    - 2\n" == capsys.readouterr().out


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    asks = 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "VALUE" } }'
    for name, value in (("good", sys.executable), ("bad", "/nowhere/python")):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1" / "model.py").touch()
        (tmp_path / "models" / name / "config.pbtxt").write_text(asks.replace("VALUE", value))
    return tmp_path / "models"


def env(tmp_path: Path, *words: str) -> tuple[int, str, str]:
    result = run("env", "--environment-directory", str(tmp_path / "cache"), *words)
    return result.exit_code, result.stdout, result.stderr


GOOD = (0, "good: the server's own Python\n", "")
WRONG = "bad: PYTHON_EXECUTABLE '/nowhere/python' must be a program that can be run\n"


def test_a_repository_or_one_model_is_prepared_without_a_server(
    tmp_path: Path, temporary: Path, repository: Path
) -> None:
    assert (1, GOOD[1], WRONG) == env(tmp_path, "prepare", str(repository))
    assert GOOD == env(tmp_path, "prepare", str(repository / "good"))
    as_json = env(tmp_path, "prepare", "--json", str(repository / "good"))[1]
    assert ["good"] == [one["model"] for one in json.loads(as_json)]


def test_models_can_be_named_where_a_server_runs(
    tmp_path: Path, server: FakeServer, repository: Path
) -> None:
    server.answers["status"] = {"repositories": [str(repository)]}

    assert GOOD == env(tmp_path, "prepare", "good")
    assert (1, GOOD[1], WRONG) == env(tmp_path, "prepare")
    assert (1, "", "error: x: must be a directory, or a model of the running server\n") == env(
        tmp_path, "prepare", "x"
    )


def test_without_a_server_a_name_is_nothing(tmp_path: Path, temporary: Path) -> None:
    status, _, said = env(tmp_path, "prepare", "good")

    assert 1 == status
    assert said.startswith("error: good: no such directory, and no running server found")


def test_what_there_is_can_be_listed_and_removed(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path / "cache"))
    tree = cache.get_or_create(BUILT, "x", "/m/requirements.txt", lambda tree: None, Reports())

    status, listed, _ = env(tmp_path, "list")
    removed = env(tmp_path, "clean")

    assert 0 == status
    assert "/m/requirements.txt" in listed
    assert str(tree) in listed
    assert (0, "removed 1\n", "") == removed
    assert (0, "Kind\tMade\tSource\tDirectory\n", "") == env(tmp_path, "list")
