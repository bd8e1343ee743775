"""Scripts of the examples that `zmqtriton example` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_script(script: Path, *words: str) -> str:
    """Return what a script of an example prints; it must succeed."""
    result = subprocess.run(
        [sys.executable, "-B", script, *words], capture_output=True, text=True, check=False
    )
    assert ("", 0) == (result.stderr, result.returncode)
    return result.stdout
