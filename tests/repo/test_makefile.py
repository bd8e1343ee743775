"""The Makefile: which environments a target makes anew."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment that is older than its setup.cfg."""
    for name in ("Makefile", "setup.cfg"):
        shutil.copy(ROOT / name, tmp_path)
    for name in (".venv/pyvenv.cfg", ".venv/bin/uv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (0, 0))
    return tmp_path


def commands(checkout: Path, target: str) -> list[str]:
    # `make test` may be what runs this
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_no_target_takes_the_environment_of_another(checkout: Path) -> None:
    of_ray = commands(checkout, "test-fleet")
    own = commands(checkout, "quick")

    assert any(line.endswith(" .venv-ray") for line in of_ray)
    assert not [line for line in of_ray if line.endswith("--clear .venv")]
    assert [line for line in own if line.endswith("--clear .venv")]
