"""The commit of this code: a checkout's, or the one in the version of the installed build.

Empty where neither is known, as in a release: there the version says all.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

from zmqtriton_floor import __version__

_ROOT = Path(__file__).resolve().parent.parent
_DIGITS = 12
#: The end of the name of an installed build, as setup.py makes it.
_BUILD = re.compile(rf"\.g([0-9a-f]{{{_DIGITS}}}[.\w]*)\.dist-info$")
#: Time limit of git: a checkout on a slow file system is not waited for.
_WITHIN_S = 5.0


def full_version() -> str:
    """Return the version with the commit, where that is known, as in 0.1.0+0123456789ab-dirty."""
    return f"{__version__}+{commit()}" if commit() else __version__


@functools.cache
def commit() -> str:
    """Return the first digits of the commit, with -dirty if files differ from it."""
    return read_checkout(_ROOT) if (_ROOT / ".git").exists() else read_installation(_ROOT)


def read_checkout(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*command, f"--abbrev={_DIGITS}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_WITHIN_S,
            env={**own, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""  # there is no git, or it does not trust another user's files
    return done.stdout.strip()


def read_installation(place: Path) -> str:
    """Return the commit in the version of the package next to this code, or "".

    It is read from the directory's name: importlib.metadata would take a tenth of the server's
    start.
    """
    builds = (_BUILD.search(each.name) for each in place.glob("zmqtriton-*.dist-info"))
    return next((build[1] for build in builds if build), "")
