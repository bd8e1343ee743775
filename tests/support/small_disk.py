"""A small disk for one server: a tmpfs in a mount namespace of its own, which ends with it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.needs import find_tool, skip_missing


def python_with_disk(directory: Path, size: int) -> Path:
    """Return a program that is this interpreter, but has a disk of this size at the directory.

    It lies beside the directory, which must be there.
    """
    mount = f"mount -t tmpfs -o size={size} none {shlex.quote(str(directory))}"
    unshare = [find_tool("unshare"), "-rm", "sh", "-c"]
    if subprocess.run([*unshare, mount], capture_output=True, check=False).returncode:
        skip_missing("a namespace that may mount")
    run = f'{mount}; exec {shlex.quote(sys.executable)} "$@"'
    python = directory.with_name("python")
    python.write_text(f'#!/bin/sh\nexec {shlex.join(unshare)} {shlex.quote(run)} sh "$@"\n')
    python.chmod(0o700)
    return python
