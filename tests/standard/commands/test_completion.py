"""The scripts by which shells complete `zmqtriton`."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.needs import skip_missing
from zmqtriton.main import main
from zmqtriton_standard.commands.completion import script


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
