"""`zmqtriton protos` and the scripts by which shells complete `zmqtriton`."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import skip_missing
from zmqtriton.main import main
from zmqtriton_standard.commands.completion import script


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
