"""Prints the Python to make environments with: this one, or the system's where that is optimised.

By default pyenv builds Pythons without profile-guided optimization, with which tests take longer.
Only a Python of the same version is taken in place of this one. Runs before anything is installed.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

SYSTEM = Path("/usr/bin")


def is_optimized() -> bool:
    """Return True for builds with profile-guided optimization, as in distributions."""
    is_of_system = Path(sys.base_prefix) == SYSTEM.parent
    return is_of_system or "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))


def can_make_environments(python: Path) -> bool:
    """Return False without a Python there, or without the modules that distributions split off."""
    command = [str(python), "-I", "-c", "import ensurepip, venv"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def choose() -> str:
    other = SYSTEM / "python{}.{}".format(*sys.version_info)
    return str(other) if not is_optimized() and can_make_environments(other) else sys.executable


if __name__ == "__main__":
    print(choose())
