"""`zmqtriton token`, `deploy`, `protos` and scripts by which shells complete `zmqtriton`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from tests.support.needs import ROOT, skip_missing
from zmqtriton.main import main
from zmqtriton_floor import token_file
from zmqtriton_standard.commands import token as command
from zmqtriton_standard.commands.completion import script
from zmqtriton_standard.commands.deploy import kinds, opening, terminal_text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def make(file: Path, name: str, *more: str) -> int:
    return main(["token", "new", "--name", name, "--scopes", "infer", *more, str(file)])


@pytest.mark.row("L09")
def test_a_new_token_is_printed_once_and_its_hash_is_kept(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_today", lambda: date(2099, 12, 31))  # its last day
    words = ["--scopes=infer,control", "--models=a*,b", "--expires=2099-12-31"]

    status = main(["token", "new", "--name=ann", *words, str(file)])

    token, said = capsys.readouterr()
    assert 0 == status
    (grant,) = token_file.Grant.read_all(str(file))
    assert grant.digest == token_file.Grant.digest_of(token.strip())
    assert grant.line().endswith(" scopes=infer,control models=a*,b expires=2099-12-31")
    assert len(token.strip()) >= len("zmqt_") + 40
    assert token.strip() not in file.read_text()
    assert "control, infer for models a*, b, until 2099-12-31" in said
    assert 0o600 == file.stat().st_mode & 0o777


def test_tokens_are_listed_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(file, "ann")
    make(file, "bob", "--models=m?")
    text = file.read_text()
    file.write_text(f"# of the desk\n{text}\n" + text.splitlines()[0].replace("ann", "#ann"))
    file.chmod(0o640)
    capsys.readouterr()

    assert 0 == main(["token", "list", str(file)])
    listed = capsys.readouterr().out
    assert 0 == main(["token", "remove", "ann", str(file)])

    assert "| ann  | infer  | *      | never   |" in listed
    assert "| bob  | infer  | m?     | never   |" in listed
    assert "sha256" not in listed
    assert ["bob"] == [grant.name for grant in token_file.Grant.read_all(str(file))]
    assert file.read_text().startswith("# of the desk\n")
    assert "#ann" in file.read_text()
    assert 0o640 == file.stat().st_mode & 0o777
    assert ["tokens"] == os.listdir(file.parent)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["new", "--name=ann", "--scopes=infer"], "line 2: the name of another line"),
        (["new", "--name=a b", "--scopes=infer"], "line 2: expecting NAME sha256:HASH"),
        (["new", "--name=é", "--scopes=infer"], "line 2: the name may have"),
        (["new", "--name=x", "--scopes=infer", "--expires=2001-01-01"], "2001-01-01 is over"),
        (["remove", "bob"], "there is no token of the name bob"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    make(file, "ann")
    before = file.read_bytes()
    capsys.readouterr()

    status = main(["token", *words, str(file)])

    printed = capsys.readouterr()
    assert (1, "") == (status, printed.out)
    assert f"error: {file}: {problem}" in printed.err
    assert before == file.read_bytes()


@pytest.mark.slow
def test_commands_at_the_same_time_lose_nothing(file: Path) -> None:
    names = [f"name{number}" for number in range(3)]

    def run(name: str) -> int:
        command = [sys.executable, "-m", "zmqtriton", "token", "new", "--scopes=infer"]
        return subprocess.run([*command, f"--name={name}", str(file)], timeout=60).returncode

    with ThreadPoolExecutor(len(names)) as pool:
        statuses = list(pool.map(run, names))

    assert [0] * len(names) == statuses
    assert names == sorted(grant.name for grant in token_file.Grant.read_all(str(file)))


@pytest.mark.slow
def test_the_line_for_python_makes_a_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["protos", "our api/protos"])

    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    line = next(line for line in printed if line.startswith("python "))
    subprocess.run([sys.executable, *shlex.split(line)[1:]], check=True, cwd=tmp_path)
    text = "import grpc_service_pb2_grpc as api; print(api.GRPCInferenceServiceStub.__name__)"
    made = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ("GRPCInferenceServiceStub\n", "") == (made.stdout, made.stderr)


def test_a_directory_that_cannot_be_made_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert 1 == main(["protos", f"{tmp_path}/file/protos"])

    assert f"error: {tmp_path}/file/protos: Not a directory\n" == capsys.readouterr().err


def completed(*words: str) -> list[str]:
    """Return what bash offers for the last of these words."""
    bash = shutil.which("bash")
    if bash is None:
        skip_missing("bash")
    typed = " ".join(f"'{word}'" for word in words)
    text = f"{script('bash')}COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _zmqtriton\n"
    text += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        [bash, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def test_bash_completes_commands_and_options() -> None:
    assert ["completion"] == completed("zmqtriton", "comp")
    assert ["--http-port"] == completed("zmqtriton", "demo", "--http-p")
    assert [] == completed("zmqtriton", "check", "mod"), "files are bash's own"


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        ("bash", "complete -o default -F _zmqtriton zmqtriton\n"),
        ("zsh", "bashcompinit\n"),
        ("fish", "complete -c zmqtriton -l http-port\n"),
    ],
)
def test_each_shell_has_its_script(
    shell: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["completion", shell])

    assert text in capsys.readouterr().out


DEPLOY = ROOT / "deploy"
ALL_KINDS = sorted(path.parent.name for path in DEPLOY.glob("*/README.md"))


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def without_links(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files without what differs where one has links."""
    outer = rb"\[([^]]*)\]\(\.\..*?\)| \[`(?:share/|zmqtriton deploy ).*?`\]"
    return {**files, "README.md": re.sub(outer, rb"\1", files["README.md"])}


def test_every_folder_is_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    folders = sorted(path.name for path in DEPLOY.iterdir() if path.is_dir())

    assert 0 == main(["deploy"])

    assert folders == list(kinds())
    shown = capsys.readouterr().out
    assert [] == [name for name in folders if f"\n  {name} " not in shown]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_all_files_are_written_and_commands_are_said(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["deploy", kind, str(tmp_path / "new/d")])

    written = files_below(tmp_path / "new/d")
    assert without_links(files_below(DEPLOY / kind)) == without_links(written)
    assert b"](.." not in written["README.md"], "a link that leads nowhere"
    for page in re.findall(rb"`share/doc/zmqtriton/(.*?)`", written["README.md"]):
        assert (ROOT / page.decode()).is_file()
    shown = capsys.readouterr().out
    assert [] == [name for name in files_below(tmp_path) if f"  {tmp_path / name}\n" not in shown]
    assert "\n    " in shown, "the README has no commands before its first section"
    for path in (DEPLOY / kind).rglob("*"):
        assert not os.access(path, os.X_OK) or os.access(tmp_path / "new/d" / path.name, os.X_OK)


def test_what_is_there_is_written_over_with_force_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deploy", "haproxy", str(tmp_path)]
    changed = tmp_path / "haproxy.cfg"
    changed.write_text("mine")

    assert 1 == main(words)
    assert ["haproxy.cfg"] == list(files_below(tmp_path))
    assert f"error: {changed}: there already, and different" in capsys.readouterr().err

    assert 0 == main([*words, "--force"])
    assert 0 == main(words), "the same files again"
    assert files_below(DEPLOY / "haproxy").keys() == files_below(tmp_path).keys()
    assert (DEPLOY / "haproxy/haproxy.cfg").read_bytes() == changed.read_bytes()


def test_an_unknown_kind_is_answered_with_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["deploy", "systmd"])

    assert f"no kind 'systmd'; the kinds are {', '.join(ALL_KINDS)}" in capsys.readouterr().err


def test_a_readme_is_shown_up_to_its_second_heading() -> None:
    readme = (
        "# Title\n\n| a | `b` |\n|---|---|\n| [c](d.md) | e |\n\nThen:\n\n    x `y`\n\n## More\n"
    )

    shown = terminal_text(opening(readme)).splitlines()

    assert ["Title", "", "+---+---+", "| a | b |", "+---+---+", "| c | e |"] == shown[:6]
    assert ["", "Then:", "", "    x `y`"] == shown[7:]
