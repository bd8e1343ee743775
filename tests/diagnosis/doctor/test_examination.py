"""All subjects together: their order, and those that cannot be read, or do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.diagnosis.doctor.findings import texts, write
from tests.support.server import MODELS_DIRECTORY
from tests.support.slow_files import SlowFiles
from zmqtriton.control_client import NoServerError, ServerSelector
from zmqtriton.diagnosis.check import run_check
from zmqtriton.diagnosis.doctor import find_target
from zmqtriton.diagnosis.examination import examine, list_chapters
from zmqtriton.diagnosis.facts.readings import ROOT
from zmqtriton.diagnosis.facts.silence import find_silent
from zmqtriton.diagnosis.facts.target import RunningServer, Target
from zmqtriton.diagnosis.rules import servers
from zmqtriton.findings import Finding, Severity
from zmqtriton_standard.environments import findings as environments

pytestmark = pytest.mark.slow


def examined(target: Target, root: Path = ROOT) -> list[Finding]:
    return examine(list_chapters(target, root))


def lines(findings: list[Finding]) -> list[str]:
    return [f"{finding.severity.value}: {finding.text}" for finding in findings]


@pytest.mark.row("L13")
@pytest.mark.parametrize("server", [None, RunningServer("a", 7, "1.0", (), {7: "supervisor"}, 1)])
def test_nothing_is_said_of_a_machine_that_is_well(
    server: RunningServer | None, tmp_path: Path
) -> None:
    write(tmp_path / "proc/meminfo", f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n")
    write(tmp_path / "proc/7/status", "State:\tS (sleeping)\nUid:\t1000\nVmSwap:\t0 kB\n")
    subjects = list_chapters(Target(server=server), tmp_path)
    # judged of the machine that tests, and by other tests
    for subject in ("the home directory", "the environment cache", "the installation", "the GPUs"):
        del subjects[subject]
    del subjects["the interpreter"], subjects["the limits"]

    assert [] == lines(examine(subjects))


def test_errors_come_first_and_each_finding_once() -> None:
    subjects = {
        "a": [Finding.note("3", ".")],
        "b": [*2 * [Finding.warning("2", ".")], Finding.error("1", ".")],
    }

    assert list(Severity) == [finding.severity for finding in examine(subjects)]


def test_what_keeps_a_model_from_being_loaded_is_told_once(tmp_path: Path) -> None:
    for model in ("torn", "odd"):
        write(tmp_path / model / "config.pbtxt", "name: [")
    troubles = [
        ("torn", "not ready: config.pbtxt, line 1: odd"),
        ("odd", "9 of 9 requests failed"),
        ("other", "not ready: it raises"),
    ]
    subjects = {
        "the models": servers.judge_models(troubles),
        "the Pythons of the models": environments.judge_pythons([str(tmp_path)], {}),
    }

    said = [line.partition(" cannot be loaded")[0] for line in lines(examine(subjects))]

    failed = ["warning: odd: 9 of 9 requests failed", "warning: other: not ready: it raises"]
    assert ["error: model odd", "error: model torn", *failed] == said


def test_there_are_many_subjects() -> None:
    assert len(list_chapters(Target())) > 25


def test_files_of_a_server_that_finds_others_there_are_not_judged(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/root" / "nowhere/models/m", "of a container")
    server = RunningServer("a", 7, "1.0", (), {7: "supervisor"}, 1)

    elsewhere = list_chapters(Target(server=server, repositories=("/nowhere/models",)), tmp_path)

    assert "the file system of the server" in elsewhere.keys() - list_chapters(Target()).keys()
    assert len(elsewhere) < len(list_chapters(Target()))


def test_a_server_that_would_not_start_is_judged_by_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    selector = ServerSelector(str(tmp_path / "run"))
    words = [
        "--model-repository=/nowhere/models",
        f"--log-file={tmp_path}/logs/server.log",
        "--http-port=0",
        "--grpc-port=0",
        "--metrics-port=0",
        "--model-env=APP_*",
    ]

    printed = texts(examined(find_target(selector, [], words)))
    wrong = texts(examined(find_target(selector, [str(tmp_path)], ["--htpp-port=1"])))

    repository = "the model repository /nowhere/models cannot be used: No such file or directory"
    assert f"error: {repository}" in printed
    assert any(text.startswith("error: the log cannot be written") for text in printed)
    assert any("those that --model-env names: APP_*" in text for text in printed)
    assert any("unrecognized option '--htpp-port'" in text for text in wrong)


def test_a_server_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NoServerError):
        find_target(ServerSelector(str(tmp_path), "someone"), [], [])


def test_options_of_the_unit_that_are_no_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZMQTRITON_OPTIONS", "--id='a")

    printed = texts(examined(find_target(ServerSelector(str(tmp_path)), [], [])))

    expected = "a server cannot start with these options: No closing quotation in --id='a"
    assert f"error: {expected}" in printed


def test_what_cannot_be_read_is_told_and_the_rest_is_judged(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "of an odd kernel\n")
    write(tmp_path / "etc/systemd/system/zmqtriton.service", "[Service]\nLimitNOFILE=100\n")
    words = ["--model-repository=/nowhere/models", "--http-port=0", "--grpc-port=0"]

    target = find_target(ServerSelector(str(tmp_path / "run")), [], words, tmp_path)
    printed = lines(examined(target, tmp_path))

    reason = "ValueError: not enough values to unpack (expected 3, got 1)"
    assert [
        f"note: could not be read: {subject}: {reason}"
        for subject in ("the memory of the machine", "the cores")
    ] == [text for text in printed if "could not be read" in text]
    assert any("the model repository /nowhere/models cannot be used" in text for text in printed)
    assert any("allows 100 file descriptors" in text for text in printed)


def test_what_was_found_before_a_subject_failed_is_kept() -> None:
    def judge() -> Iterator[Finding]:
        yield Finding.error("it is full", "Empty it.", "rm")
        Path("/nowhere/limits").read_text()

    assert [
        "error: it is full",
        "note: could not be read: the limits: No such file or directory: /nowhere/limits",
    ] == lines(examine({"the limits": judge()}))


def test_what_could_not_be_read_may_be_for_root_alone() -> None:
    def judge(problem: Exception) -> Iterator[Finding]:
        yield from ()
        raise problem

    denied = PermissionError(13, "Permission denied", "/proc/1/limits")
    forbidden, odd = examine({"the limits": judge(denied), "the cores": judge(ValueError("x"))})

    assert "could not be read: the limits: Permission denied: /proc/1/limits" == forbidden.text
    assert ("sudo zmqtriton-ctl doctor",) == forbidden.commands
    assert () == odd.commands


def test_the_file_of_options_is_judged_like_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('model-repository = "/nowhere/models"\nhttp-port = 0\ngrpc-port = 0\n')
    selector = ServerSelector(str(tmp_path / "run"))

    right = texts(examined(find_target(selector, [], [f"--config={file}"])))
    file.write_text("\nhttp-port = 70000\n")
    wrong = texts(examined(find_target(selector, [], [f"--config={file}"])))

    assert any("the model repository /nowhere/models cannot be used" in text for text in right)
    place = f'Bad option: "http-port" in {file}, line 2. Port must be in the range 0 to 65535'
    assert any(place in text for text in wrong)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """A repository that does not answer."""
    (tmp_path / "source").mkdir()
    with SlowFiles(tmp_path / "source", tmp_path / "slow") as slow:
        slow.hold()
        yield str(slow.place)


def test_directories_that_answer_or_are_not_there_are_not_silent(tmp_path: Path) -> None:
    assert [] == find_silent([str(tmp_path), "/nowhere"])


def test_a_repository_that_does_not_answer_is_named_by_the_doctor(silent: str) -> None:
    subjects = list_chapters(Target(repositories=[silent, "/nowhere"]))

    of_places = {name: subjects[name] for name in subjects if name.endswith("repositories")}
    printed = texts(examine(of_places))

    assert [
        f"error: the model repository {silent} does not answer: its file system hangs, or is very "
        "slow",
        "error: the model repository /nowhere cannot be used: No such file or directory",
    ] == printed


def test_a_check_names_it_and_goes_on(silent: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = run_check([silent, str(MODELS_DIRECTORY / "add_sub")])

    line = f"error: {silent}: it does not answer within 5 s; its file system may hang"
    assert f"{line}\n1 model, 1 problem, 0 warnings\n" == capsys.readouterr().out
    assert 1 == status
