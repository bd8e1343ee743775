"""Distributions of packages/ as wheels, and scripts that have one installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def unpacked(package: Path, directory: Path) -> Path:
    """Build a wheel of a copy of the package; return where it is unpacked."""
    shutil.copytree(package, directory / "source", ignore=shutil.ignore_patterns("*.egg-info"))
    with zipfile.ZipFile(build(directory / "source", directory, "--wheel")) as archive:
        archive.extractall(directory / "target")
    return directory / "target"


def build(source: Path, directory: Path, *options: str) -> Path:
    """Build a package; return its wheel in the directory, or with `--sdist` that."""
    command = [sys.executable, "-m", "build", *options, "--no-isolation"]
    result = subprocess.run(
        [*command, "--outdir", str(directory), str(source)],
        capture_output=True,
        text=True,
        check=False,
        # The roots would be searched for packages of the build itself.
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    path, *_ = (*directory.glob("*.whl"), *directory.glob("*.tar.gz"))
    return path


def run(target: Path, code: str, document: Any = None) -> str:
    """Return what a script prints that has the distribution installed."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
        cwd=target,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(ROOT)])},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
