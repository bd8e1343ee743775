"""Runs the server's models as another user: all of a session's, with `ZT_STUB_USER=nobody`.

That user must reach the interpreter, those of models, and this checkout, which may lie in root's
home or in another closed directory. Such a server gets a view of the file system of its own, in
which these may be entered; the machine's stays as it is.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.needs import find_tool

#: The user of all servers of this session; "" is the one who tests.
EVERYWHERE = os.environ.get("ZT_STUB_USER", "")
#: Makes entries of directories, up to `--`, part of ones that everybody may enter, then becomes
#: the other arguments.
_OPEN = """
set -e
mount --make-rprivate /
while [ "$1" != -- ]; do
    closed=$1; shift
    mount -t tmpfs -o mode=755 tmpfs /mnt
    for entry in "$closed"/.[!.]* "$closed"/*; do
        [ -e "$entry" ] || continue
        place=/mnt/${entry##*/}
        if [ -d "$entry" ]; then mkdir "$place"; else : > "$place"; fi
        mount --bind "$entry" "$place"
    done
    mount --move /mnt "$closed"
done
shift
exec "$@"
"""
_ROOT = Path(__file__).resolve().parents[2]


def why_not(user: str = "nobody") -> str:
    """Why no server can run models as this user here; "" if one can."""
    if os.geteuid():
        return "only root runs models as another user"
    if missing := [tool for tool in ("setpriv", "unshare", "mount") if not shutil.which(tool)]:
        return f"{missing[0]} is missing"
    # a shell is between, since setpriv itself starts what only root may reach
    words = ["setpriv", f"--reuid={user}", "--clear-groups", "sh", "-c", 'exec "$@"', "sh"]
    words += [sys.executable, "-c", "import zmqtriton"]
    done = subprocess.run(within_reach(words), capture_output=True, text=True, check=False)
    return f"{user} cannot run {sys.executable}: {done.stderr}" if done.returncode else ""


def within_reach(command: Sequence[str]) -> list[str]:
    """The command, where needed in a view in which everybody reaches the interpreters."""
    interpreter, home = Path(os.path.realpath(sys.executable)), Path.home()
    paths = (interpreter, Path(sys.executable), _ROOT / "tests", home / "interpreter")
    closed = dict.fromkeys(str(each) for path in paths for each in _closed_directories(path))
    if not closed:
        return list(command)
    find_tool("mount", package="mount")
    unshare = find_tool("unshare", package="util-linux")
    return [unshare, "--mount", "sh", "-c", _OPEN, "sh", *closed, "--", *command]


def _closed_directories(path: Path) -> Iterator[Path]:
    """Yield the directories on the way that others may not enter, the outermost first."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            yield parent


def open_up(directory: Path) -> None:
    """Let everybody into a directory of a test, and read all that is below it."""
    for parent in (directory, *directory.parents):
        status = parent.stat()
        if status.st_uid == os.geteuid() and not status.st_mode & stat.S_IXOTH:
            parent.chmod(status.st_mode & 0o7777 | 0o711)
    for place, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(place, name)
            if not path.is_symlink():
                mode = path.stat().st_mode & 0o7777
                path.chmod(mode | (0o755 if path.is_dir() or mode & 0o100 else 0o644))
