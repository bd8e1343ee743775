"""The users that models run as, apart from the server's own, and the directory of environments.

A model of another user can neither signal nor read what belongs to the server, and the kernel sees
to it. The first user of `--stub-user` is for every model that names no other one of them. The
directory has environments that are unpacked and built, and a mark that it is in use.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from zmqtriton import runtime_places
from zmqtriton_floor import prctl

_PROBE_TIMEOUT_S = 30
#: Program that prints the first path that its user cannot read.
_PROBE = """
import os, sys
for path in sys.argv[1:]:
    if not os.access(path, os.R_OK if os.path.isfile(path) else os.X_OK):
        print(path)
        break
"""
#: Directories of the server's user.
_VARIABLES_OF_USERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
#: Name of a file that servers lock while their models use the cache.
IN_USE = "in-use"


def default_root(*, is_shared: bool = False) -> str:
    """Return the directory that systemd names, or one below the user's cache directory.

    It is below the system's cache directory if it is shared with other users.
    """
    if is_shared and not runtime_places.named_by_systemd("CACHE"):
        return "/var/cache/zmqtriton/environments"
    return os.path.join(runtime_places.lasting("CACHE", "~/.cache"), "environments")


def lock_in_use(root: str) -> int | None:
    """Return a descriptor that keeps other processes from cleaning the cache while it is open.

    For a server, whose models use entries of the cache.
    """
    path = os.path.join(root, IN_USE)
    try:
        os.makedirs(root, 0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None  # whoever prepares the environment will report it
    with suppress(BlockingIOError):  # it is being cleaned: what is missing then is made again
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor


class UserError(OSError):
    """Raised for a user that models cannot run as; the text is for the server's operator."""


class StubUser(NamedTuple):
    name: str
    uid: int
    gid: int
    #: All its groups, and the one through which stubs reach the server.
    groups: tuple[int, ...]
    home: str

    def become(self) -> None:
        """Run as this user from here on, with its variables. Raises OSError."""
        prctl.become_user(self.uid, self.gid, self.groups, self.variables)

    @property
    def variables(self) -> dict[str, str | None]:
        """Return the variables that differ from the server's; None removes one."""
        names = dict.fromkeys((*_VARIABLES_OF_USERS, "XDG_RUNTIME_DIR"))
        return {**names, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}


class StubUsers:
    """The users of the command line; none if models run as the server's own user."""

    def __init__(self, names: Sequence[str]) -> None:
        """Look the users up. Raises UserError."""
        users = [find_user(name) for name in names]
        #: Group of all users, for the server's sockets that stubs connect to; None without users.
        self.group = users[0].gid if users else None
        self._users = {
            user.name: user._replace(groups=tuple({*user.groups, users[0].gid})) for user in users
        }

    def get(self, name: str) -> StubUser | None:
        """Return the user; None for "", the server's own."""
        return self._users[name] if name else None

    def check(self, paths: Sequence[Path]) -> None:
        """Try whether each user can be used, and reaches these paths. Raises UserError."""
        for user in self._users.values():
            _check(user, [str(path) for path in (*paths, *_module_paths())])


def find_user(name: str) -> StubUser:
    """Look a user up. Raises UserError for root, the server's own user and unknown ones."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserError(f"--stub-user: there is no user '{name}'; make it with useradd") from None
    if entry.pw_uid in (0, os.geteuid()):
        whose = "root" if entry.pw_uid == 0 else "the user of the server itself"
        raise UserError(f"--stub-user: '{name}' is {whose}; models need another one")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return StubUser(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def _module_paths() -> list[Path]:
    """Return the files of modules that every stub loads."""
    specs = [importlib.util.find_spec(name) for name in ("zmq", "msgpack", "numpy")]
    files = [spec.origin for spec in specs if spec is not None and spec.origin]
    return [Path(file) for file in (os.__file__, *files)]


def _check(user: StubUser, paths: Sequence[str]) -> None:
    try:
        probe = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, *paths],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            user=user.uid,
            group=user.gid,
            extra_groups=user.groups,
        )
    except OSError as error:
        if error.errno == errno.EPERM:
            reason = "only root, or a process with CAP_SETUID and CAP_SETGID, may change its user"
        else:
            reason = f"it cannot run {sys.executable}: {error.strerror}"
    except subprocess.SubprocessError as error:
        reason = str(error)
    else:
        unread = probe.stdout and f"it must be able to read {probe.stdout.strip()}"
        failure = probe.stderr.strip()[-500:] or f"its check has ended with {probe.returncode}"
        reason = failure if probe.returncode else unread
    if reason:
        raise UserError(f"--stub-user: models cannot run as '{user.name}': {reason}")


def give_directory(parent: str, user: StubUser) -> str:
    """Return the user's own directory below this one, which is made if it can be.

    If it cannot be made, the process that uses it reports that.
    """
    path = os.path.join(parent, user.name)
    with suppress(OSError):
        os.makedirs(parent, exist_ok=True)
        with suppress(PermissionError):
            os.chmod(parent, os.stat(parent).st_mode & 0o7777 | 0o011)
        with suppress(FileExistsError):
            os.mkdir(path)
            lock = os.path.join(path, IN_USE)
            Path(lock).touch()
            # whatever the umask is: the server locks that file
            for name, mode in ((lock, 0o644), (path, 0o711)):
                os.chmod(name, mode)
                os.chown(name, user.uid, user.gid)
    return path


def become(name: str, parent: str) -> str:
    """Run as this user from here on; return the directory of its environments.

    Raises OSError, and UserError, which is one.
    """
    user = find_user(name)
    cache = give_directory(parent or default_root(is_shared=True), user)
    user.become()
    os.environ["XDG_CACHE_HOME"] = downloads_directory(cache)
    return cache


def downloads_directory(cache: str) -> str:
    """Return the directory of uv's downloads, for a user that may have no home."""
    return os.path.join(cache, "downloads")
