"""Default directories for servers, where other programs look for them.

Clean-ups remove old files from /tmp, and a directory in /run/user/UID goes when the user has logged
out, unless the user lingers: a server outlives both.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

_ROOT = Path("/")


def preferred() -> Path:
    """Return the directory for new runtime directories. Raises OSError without one."""
    if os.environ.get("TMPDIR"):
        return Path(tempfile.gettempdir())
    if os.geteuid() == 0:
        own = [_ROOT / "run"]
    else:
        own = _of_user() if _lingers() else []
    return next((path for path in own if os.access(path, os.W_OK | os.X_OK)), None) or Path(
        tempfile.gettempdir()
    )


def named_by_systemd(kind: str) -> str:
    """Return the service's own directory of a kind, such as STATE; "" outside of a service."""
    # systemd separates several by colons; the first is the service's own
    return os.environ.get(f"{kind}_DIRECTORY", "").partition(":")[0]


def named_directory(directory: str) -> str:
    """Return the runtime directory that the option or systemd names; "" if none does."""
    return directory or named_by_systemd("RUNTIME")


def lasting(kind: str, home: str) -> str:
    """Return the directory for data that outlives a program: the service's, or the user's.

    `home` is the user's default, if no variable names a directory.
    """
    return named_by_systemd(kind) or os.path.join(
        os.environ.get(f"XDG_{kind}_HOME") or os.path.expanduser(home), "zmqtriton"
    )


def places() -> list[Path]:
    """Return all directories where servers of any user may have runtime directories."""
    run = _ROOT / "run"
    return list(
        dict.fromkeys([*_of_user(), run, *sorted(run.glob("user/*")), _temporary(), _ROOT / "tmp"])
    )


def _of_user() -> list[Path]:
    """Return the directory that logind has made for this user, or none."""
    path = _ROOT / "run" / "user" / str(os.geteuid())
    named = Path(os.environ.get("XDG_RUNTIME_DIR") or path)
    return [place for place in dict.fromkeys((named, path)) if _is_ours(place)]


def _is_ours(path: Path) -> bool:
    try:
        return path.is_absolute() and path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _lingers() -> bool:
    """True if the directory of this user stays without a session."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return (_ROOT / "var/lib/systemd/linger" / name).exists()


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return _ROOT / "tmp"  # this user may write nowhere; others may have servers all the same
