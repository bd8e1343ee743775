"""The commands against a server that a test plays."""

from __future__ import annotations

import errno
import json
import os
import pwd
import socket
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.standard.ctl.fake_server import STATUS, FakeServer, run
from zmqtriton.control_client import NoServerError, connect
from zmqtriton.ctl.main import cli
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_standard.ctl import status as listing
from zmqtriton_standard.ctl import tables
from zmqtriton_standard.ctl.output import print_document
from zmqtriton_standard.ctl.selecting import move_to_front, parse_server
from zmqtriton_standard.ctl.status import Use
from zmqtriton_standard.metrics.processes import ProcessStat


def test_an_instance_of_the_service_is_found_beside_it(temporary: Path) -> None:
    instance = FakeServer(temporary / "service-a")

    assert 0 == run("status").exit_code
    instance.close()


def test_a_server_is_found_wherever_its_directory_is(temporary: Path) -> None:
    server = FakeServer(temporary / "of systemd")
    try:
        listening = Path("/proc/net/unix").read_text().splitlines(keepends=True)
        ours = [line for line in listening if str(temporary) in line]
        (temporary / "kernel-sockets").write_text("".join(ours))

        assert run("status").stdout.startswith("'alpha'")
    finally:
        server.close()


def words_of(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("utc")
def test_the_status_is_a_table_of_processes_and_one_of_counts(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 3602.5)
    monkeypatch.setattr(listing, "read_stat", {9: ProcessStat(1, 3.5, 0, 60 << 20)}.get)

    table = run("status")

    assert table.exit_code == 0
    first, _, header, supervisor, stub, grpc, _, _, counts = words_of(table)
    assert (
        "'alpha', zmqtriton 1.2.3, up 1h00m, http 0.0.0.0:8000, grpc [::1]:8001: "
        "1 of 2 model versions are ready"
    ) == " ".join(first)
    columns = "Process Model Pid Started Up State Restarts Memory CPU Last reason".split()
    assert columns == header
    assert ["supervisor", "7", "1970-01-01", "00:00:01", "1h00m", "running"] == supervisor[:-2]
    assert ["-", "-"] == supervisor[-2:]
    # A reason is a model's text, and not ours to format.
    reason = ["60", "MiB", "3s", "killed", "by", "[bold]SIGKILL"]
    started = ["1970-01-01", "00:00:02"]
    assert ["stub", "m_0_0", "m:1", "9", *started, "1h00m", "READY", "2", *reason] == stub
    assert ["grpc", "-", "-", "-", "0", "-", "-"] == grpc
    assert ["m:1", "11", "22", "33", "44"] == counts


def test_the_status_as_json_is_what_the_server_says_and_how_long_each_has_been_up(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 11.5)
    monkeypatch.setattr(listing, "read_stat", {9: ProcessStat(1, 3.5, 0, 1024)}.get)

    document = json.loads(run("status", "--json").output)

    assert [10.5, 9.5, None] == [process.pop("uptime_s") for process in document["processes"]]
    use = [[one.pop(name) for name in Use._fields] for one in document["processes"]]
    assert [[None, None], [1024, 3.5], [None, None]] == use
    assert STATUS == document


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
    shown = [line.split() for line in lines[lines.index(next(filter(_is_about_models, lines))) :]]
    assert ["Not", "ready", "Version", "State", "Reason"] == shown[0]
    assert ["wrong", "3", "UNAVAILABLE", "Error:", "x", "At:", "y"] == shown[1]
    assert [] == shown[2]


def _is_about_models(line: str) -> bool:
    return line.startswith("Not ready")


def test_a_table_without_rows_is_left_out(server: FakeServer) -> None:
    on_demand = {"waiting": {}, "models": [], "budget_bytes": 0, "gpus": []}
    server.answers["status"] = {**STATUS, "on_demand": on_demand}

    assert "On demand" not in run("status").stdout


def test_a_status_without_a_broker_says_so(server: FakeServer) -> None:
    server.answers["status"] = {**STATUS, "counts": None}

    table = run("status")

    assert table.exit_code == 0
    assert "the broker has not answered in time" in table.stderr


def test_models_are_listed(server: FakeServer) -> None:
    server.answers["index"] = [
        {"name": "m", "version": "1", "state": "READY"},
        {"name": "n"},
    ]

    listed = run("models", "--ready")

    assert listed.exit_code == 0
    assert ["Model", "Version", "State", "Reason"] == listed.output.splitlines()[0].split()
    assert ["m", "1", "READY"] == listed.output.splitlines()[1].split()
    assert [("index", {"ready": True})] == server.calls


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


@pytest.mark.parametrize(
    "command", ["load", "unload", pytest.param("restart", marks=pytest.mark.addons)]
)
def test_a_name_that_no_model_has_is_refused_with_the_one_that_was_meant(
    server: FakeServer, command: str
) -> None:
    server.answers["load"] = InvalidArgument("failed to load 'ad_sub', failed to poll")
    server.answers["index"] = [{"name": "add_sub"}, {"name": "m"}]

    refused, strange = run(command, "ad_sub"), run(command, "x")

    assert (1, 1) == (refused.exit_code, strange.exit_code)
    assert refused.stderr == "error: there is no model 'ad_sub'; did you mean 'add_sub'?\n"
    assert "there is no model 'x'; `zmqtriton-ctl models` lists them" in strange.stderr
    assert "unload" not in [verb for verb, _ in server.calls]


def test_no_server_is_status_2(temporary: Path) -> None:
    (temporary / "zmqtriton-notes.txt").touch()  # somebody's file, not a server's directory

    finished = run("status")

    assert finished.exit_code == 2
    assert f"no running server found in {temporary}/zmqtriton-*" in finished.stderr


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nothing", "there is none"),
        ("dead", "the server has ended"),
        ("closed", "it is another user's; ask as that user or as root"),
    ],
)
def test_no_server_says_what_was_found_instead(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    directory = temporary / "zmqtriton-1"
    directory.mkdir()
    if kind == "dead":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.bind(str(directory / "ctl"))
    if kind == "closed":

        class Refused(socket.socket):
            def connect(self, address: Any) -> None:
                raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(socket, "socket", Refused)

    finished = run("status")

    assert finished.exit_code == 2
    assert f"error: no running server found in {directory} ({reason})\n" == finished.stderr


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


def test_a_server_that_ends_meanwhile_is_status_2(server: FakeServer) -> None:
    server.answers["status"] = "hang up"

    finished = run("status")

    assert finished.exit_code == 2
    assert "has ended the conversation" in finished.stderr


def test_an_unknown_command_is_status_2() -> None:
    assert run("dance").exit_code == 2


def test_the_newest_server_that_lives_is_asked(temporary: Path, several: list[FakeServer]) -> None:
    with connect() as client:
        assert client.directory == temporary / "zmqtriton-new"


def test_who_is_told_of_one_server_among_several_is_told_which(several: list[FakeServer]) -> None:
    shown = run("status")

    assert shown.exit_code == 0
    assert shown.stdout.startswith("'new'")
    assert (
        "2 servers run; this is 'new' (pid 70, http 0.0.0.0:8000). "
        "Others by --server, see `zmqtriton-ctl servers`.\n"
    ) == shown.stderr


@pytest.mark.parametrize("name", ["old", "71", "pid:71", "8001", ":8001"])
def test_one_of_several_servers_is_named_by_id_pid_or_port(
    several: list[FakeServer], name: str
) -> None:
    shown, done = run("--server", name, "status"), run("--server", name, "unload", "m")

    assert (shown.stdout[:5], shown.stderr) == ("'old'", "")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "unload" in [verb for verb, _ in several[1].calls]


@pytest.mark.parametrize(("name", "meant"), [("pid:8001", "'new'"), (":8001", "'old'")])
def test_a_pid_that_is_another_servers_port_is_told_apart(
    several: list[FakeServer], name: str, meant: str
) -> None:
    several[0].answers["status"]["processes"][0]["pid"] = 8001

    refused, shown = run("--server", "8001", "status"), run("--server", name, "status")

    assert refused.exit_code == 2
    assert "2 servers are called '8001', so name its pid, as pid:N; running" in refused.stderr
    assert (shown.exit_code, shown.stdout[:5]) == (0, meant)


def test_two_servers_that_share_a_port_are_named_by_their_pids(several: list[FakeServer]) -> None:
    addresses = several[1].answers["status"]["server"]["addresses"]
    several[0].answers["status"]["server"]["addresses"] = addresses

    refused = run("--server", ":8001", "status")

    assert refused.exit_code == 2
    assert "2 servers are called ':8001', so name its pid, as pid:N; running" in refused.stderr


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


def test_a_server_that_nobody_is_called_is_not_found(several: list[FakeServer]) -> None:
    finished = run("--server", "nobody", "status")

    assert finished.exit_code == 2
    assert "error: no server is called 'nobody'; running: 'new' (pid 70" in finished.stderr


def test_of_many_servers_three_are_named(temporary: Path, several: list[FakeServer]) -> None:
    for number in range(3):
        server = FakeServer(temporary / f"zmqtriton-{number}")
        server.answers["status"] = {**STATUS, "server": {**STATUS["server"], "id": f"s{number}"}}
        several.append(server)

    finished = run("--server", "nobody", "status")

    assert 3 == finished.stderr.count("(pid ")
    assert finished.stderr.endswith(" and 2 more, see `zmqtriton-ctl servers`\n")


def test_servers_are_listed(several: list[FakeServer]) -> None:
    table, document = run("servers"), json.loads(run("servers", "--json").stdout)

    assert ["new", "old"] == [row[0] for row in words_of(table)[1:]]
    assert ["70", "71"] == [row[1] for row in words_of(table)[1:]]
    assert ["new", "old"] == [server["id"] for server in document]
    assert [{"http": "0.0.0.0:8000"}, {"http": "0.0.0.0:8001"}] == [
        server["addresses"] for server in document
    ]


def test_servers_of_others_are_named_to_who_may_not_ask_them(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / "zmqtriton-1").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)

    finished = run("status")

    owner = pwd.getpwuid(os.getuid()).pw_name
    assert f"{owner} may have one: ask as that user or as root" in finished.stderr


def test_root_is_answered_by_servers_of_others(
    server: FakeServer, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    real = Path.lstat

    def owned_by_others(path: Path) -> Any:
        fields = list(real(path))
        fields[4] = 4242
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "lstat", owned_by_others)

    assert run("status").stdout.startswith("'alpha'")


def test_a_server_is_named_by_option_or_environment(
    temporary: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = temporary / "zmqtriton-1"
    assert run("--runtime-directory", str(directory), "status").exit_code == 0
    assert run("--runtime-directory", "/nowhere", "status").exit_code == 2

    monkeypatch.setenv("RUNTIME_DIRECTORY", "/nowhere")
    with pytest.raises(NoServerError, match="/nowhere"):
        connect()


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

    result = CliRunner().invoke(cli, ["models"], color=True)

    assert is_coloured is ("\x1b[" in result.output)


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
