"""The directory of the server's sockets: private, locked while in use, removed afterwards.

The directory itself is also locked: systemd-tmpfiles does not touch a locked one. Other cleaners
may remove it under the running server, which notices this and makes it again.

Stubs of other users may enter the directory, by a group of theirs, and connect to the sockets that
they need; they cannot list it, and write below one directory only.

A server that was killed together with its broker leaves its directory behind; the next server that
starts removes directories whose lock is free.

In a runtime directory chosen by the user, each server has its own subdirectory, because there are
two servers during a take-over. Links next to the subdirectories lead to the sockets of the serving
server.
"""

from __future__ import annotations

import fcntl
import grp
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

from zmqtriton import runtime_places
from zmqtriton.options import Options, option_of
from zmqtriton.roles import LOCAL_SERVICES, services_of
from zmqtriton.sdk.addon import Process
from zmqtriton.supervisor import settings
from zmqtriton_floor import staging
from zmqtriton_floor.endpoints import local_service_path, stream_path
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.process import named_places

PREFIX = "zmqtriton-"
_DRAFT = "draft"
#: Folders for the directories that stubs create, as any user.
_FOLDERS_OF_STUBS = (staging.folder(""), settings.BYTECODE_FOLDER)
#: The names of a server's files in here, apart from sockets.
_OWN_NAMES = frozenset((named_places.LOCK, _DRAFT, *_FOLDERS_OF_STUBS))
_OUR_SOCKETS = ("requests-", "stubs-", "stream-")
#: The longest path of a unix socket, less the longest name in here.
_MAX_PATH = 107 - len("/requests-4294967295")
_CONTROL = "ctl"
#: To the sockets of the server that serves, in a named directory.
_LINKS = (_CONTROL, *LOCAL_SERVICES)


class DirectoryError(InternalError):
    """Raised when there is no directory to use; the text is for the server's operator."""


class RuntimeDirectory:
    """The directory, from `claim` to `remove`."""

    def __init__(self, path: Path, lock: int, named: Path | None = None) -> None:
        self.path = path
        #: The runtime directory chosen by the user, if this is a subdirectory of it.
        self.named = named
        self._lock_descriptor = lock
        #: Open, and locked for cleaners.
        self._descriptor = _lock_directory(path)
        #: The group that was let in.
        self._group: int | None = None
        self._was_shown = False

    @property
    def control_path(self) -> Path:
        """Return the path of the socket for zmqtriton-ctl."""
        return self.path / _CONTROL

    def remove_broker_sockets(self) -> None:
        """Remove the sockets of a dead broker."""
        for pattern in ("requests-*", "stubs-*"):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)

    def remove_process_files(self, serial: int, held: Container[str] = ()) -> None:
        """Remove the files of a dead process.

        These are its socket, which libzmq does not remove, and files for loads that it has not
        requested yet; files of requested loads are still in use.
        """
        Path(stream_path(str(self.path), serial)).unlink(missing_ok=True)
        folder = staging.folder(str(self.path))
        with suppress(FileNotFoundError):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if name.startswith(f"{serial}-") and path not in held:
                    shutil.rmtree(path, ignore_errors=True)

    def admit(self, group: int) -> None:
        """Let the stubs of this group enter the directory. Raises OSError."""
        self._group = group
        for name in _FOLDERS_OF_STUBS:
            if name == settings.BYTECODE_FOLDER and os.geteuid():
                continue  # only root can remove what is left in a directory of another user
            folder = self.path / name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1733)
        admit_group(self.path, group)
        if self.named is not None:
            admit_group(self.named, group)

    def show(self) -> None:
        """Link this server's sockets into the user's directory, for clients. Raises OSError."""
        if self.named is None:
            return
        self._was_shown = True
        mine, named = self.path.stat(), self.named.stat()
        if (mine.st_gid, mine.st_mode) != (named.st_gid, named.st_mode):
            os.chown(self.named, -1, mine.st_gid)
            self.named.chmod(stat.S_IMODE(mine.st_mode))
        for name in _LINKS:
            if name != _CONTROL and not os.path.lexists(self.path / name):
                (self.named / name).unlink(missing_ok=True)
            else:
                draft = self.path / _DRAFT
                draft.unlink(missing_ok=True)
                draft.symlink_to(f"{self.path.name}/{name}")
                draft.rename(self.named / name)

    @property
    def is_hidden(self) -> bool:
        """True if the links have led to this server, and now lead to no living one."""
        if self.named is None or not self._was_shown:
            return False
        try:
            shown = self.named / os.path.dirname(os.readlink(self.named / _CONTROL))
            return shown != self.path and not named_places.is_locked(shown)
        except OSError:
            return True

    @property
    def is_lost(self) -> bool:
        """True if the directory, or the socket for zmqtriton-ctl in it, was removed."""
        try:
            status, ours = self.path.lstat(), os.fstat(self._descriptor)
            self.control_path.lstat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != (ours.st_dev, ours.st_ino)

    def restore(self) -> None:
        """Make the directory again, without sockets. Raises OSError and DirectoryError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise DirectoryError(
                f"'{self.path}' belongs to another process now: start the server again"
            )
        self.path.chmod(0o700)
        lock, directory = _create_lock(self.path), _lock_directory(self.path)
        os.close(self._lock_descriptor)
        os.close(self._descriptor)
        self._lock_descriptor, self._descriptor = lock, directory
        if self._group is not None:
            self.admit(self._group)

    def remove(self) -> None:
        """Remove everything, except a directory that existed before."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_descriptor)
        os.close(self._descriptor)
        if self.named is not None:
            with suppress(OSError, DirectoryError):
                named_places.leave(self.named)


def claim(
    directory: str = "", group: int | None = None, predecessor: Path | None = None
) -> RuntimeDirectory:
    """Claim the given directory, $RUNTIME_DIRECTORY, or a new one, and let this group in.

    `predecessor` is the directory of the replaced server, which may be the named one. Raises
    DirectoryError.
    """
    claimed = _claim(directory, predecessor)
    if group is not None:
        try:
            claimed.admit(group)
        except OSError as error:
            claimed.remove()
            raise DirectoryError(
                f"cannot let the group {group} into '{claimed.path}': {error.strerror}"
            ) from error
    return claimed


def admit_group(directory: Path, group: int) -> None:
    """Let a group enter a directory, which it still cannot list."""
    os.chown(directory, -1, group)
    directory.chmod(0o710)


def _claim(directory: str, predecessor: Path | None) -> RuntimeDirectory:
    named = runtime_places.named_directory(directory)
    if named:
        path = Path(named).absolute()
        try:
            return _claim_in(path, predecessor)
        except TimeoutError:
            raise _in_use(path) from None
        except OSError as error:
            raise DirectoryError(f"cannot use runtime directory '{path}': {error}") from error
    try:
        made = create_directory(runtime_places.preferred())
    except OSError as error:
        raise DirectoryError(
            f"there is no directory for the server's sockets: {error}; name one that can be "
            "written with --runtime-directory or TMPDIR"
        ) from error
    _check_length(made.path)
    return made


def _claim_in(path: Path, predecessor: Path | None) -> RuntimeDirectory:
    """Make a directory in the named one. Raises DirectoryError and OSError."""
    _check_length(path / "0")
    is_new = not path.exists()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_content(path)
    with named_places.alone(path) as lock:
        living = named_places.living(path)
        if living and (predecessor is None or _home_of(predecessor) not in living):
            raise _in_use(path)
        if is_new:
            os.write(lock, named_places.MADE)
        if not living:
            path.chmod(0o700)
            named_places.clear(path)
        home = next(each for n in range(len(living) + 1) if (each := path / str(n)) not in living)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        home.chmod(0o700)
        return RuntimeDirectory(home, _create_lock(home), named=path)


def _in_use(path: Path) -> DirectoryError:
    return DirectoryError(f"runtime directory '{path}' is in use by another server: choose another")


def _home_of(directory: Path) -> Path:
    """Return the server's own directory, found by the links in another directory."""
    return Path(os.path.realpath(directory / _CONTROL)).parent


def create_directory(parent: Path) -> RuntimeDirectory:
    """Create a directory, after removing those of dead servers. Raises OSError."""
    remove_stale(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    return RuntimeDirectory(path, _create_lock(path))


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > _MAX_PATH:
        raise DirectoryError(
            f"the path of runtime directory '{path}' is too long for sockets: choose a shorter "
            "one with --runtime-directory"
        )


def _check_content(path: Path) -> None:
    """Refuse a directory with foreign files, since everything in it will be removed."""
    for entry in sorted(path.iterdir()):
        is_ours = entry.name in _OWN_NAMES or entry.name.startswith(_OUR_SOCKETS)
        is_ours |= entry.name in _LINKS and entry.is_symlink()
        is_ours |= entry.name.isdigit() and (
            named_places.LOCK in (names := os.listdir(entry)) or not names
        )
        if not is_ours and not stat.S_ISSOCK(entry.lstat().st_mode):
            raise DirectoryError(
                f"cannot use runtime directory '{path}': it has '{entry.name}', which is no "
                "server's; name a directory that nothing else uses"
            )


def _lock_directory(path: Path) -> int:
    """Return a descriptor of the directory, with a lock that keeps systemd-tmpfiles out of it."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # a cleaner is looking just now, or the file system has no locks
        fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return directory


def _create_lock(path: Path) -> int:
    """Create the lock under another name first, so that no sweep finds it free."""
    draft = path / _DRAFT
    lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(path / named_places.LOCK)
    return lock


def remove_stale(parent: Path) -> None:
    """Remove the directories of this user's dead servers."""
    for path in find_candidates(parent):
        try:
            if not (path / named_places.LOCK).exists():
                continue  # being made, or not ours
            lock = named_places.try_lock(path)
        except OSError:
            continue  # another server was faster
        if lock is not None:
            if not named_places.living(path):
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def find_candidates(parent: Path) -> Iterator[Path]:
    """Return directories that look like those of this user's servers."""
    for path in sorted(parent.glob(f"{PREFIX}*")):
        with suppress(OSError):  # it has just been removed
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                yield path


def bind_local_services(
    options: Options, directory: Path, models: int | None
) -> dict[str, socket.socket]:
    """Bind a socket for each service, by name, without listening on it yet.

    `models` is the group that may enter the directory already. Raises DirectoryError; then nothing
    stays bound.
    """
    sockets: dict[str, socket.socket] = {}
    admitted = models
    try:
        for name, service in services_of(options).items():
            if service.has_socket:
                group = _group_of(options, service, admitted)
                admitted = admitted if group is None else group
                sockets[name] = _bind(name, service, directory, group)
    except DirectoryError:
        for bound in sockets.values():
            bound.close()
        raise
    return sockets


def _group_of(options: Options, service: Process, admitted: int | None) -> int | None:
    """Return the group whose members may connect; None: only the server's own user."""
    name: str = service.group and options.value(service.group)
    if not name:
        return None
    group = _find_group(option_of(service.group), name)
    if admitted not in (None, group):
        raise DirectoryError(
            f"{option_of(service.group)}: one group may enter the runtime directory, and with "
            "--stub-user it is that of the first such user"
        )
    return group


def _bind(name: str, service: Process, directory: Path, group: int | None) -> socket.socket:
    path = local_service_path(str(directory), name)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        bound.bind(path)
        # nobody can connect before it listens
        os.chmod(path, 0o600)
        if group is not None:
            os.chown(path, -1, group)
            os.chmod(path, 0o660)
            admit_group(directory, group)
    except OSError as error:
        bound.close()
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise DirectoryError(
            f"{option_of(service.on)}: cannot make the socket '{path}': {error.strerror}"
        ) from error
    return bound


def _find_group(option: str, name: str) -> int:
    with suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    if name.isascii() and name.isdigit():
        return int(name)
    raise DirectoryError(f"{option}: there is no group '{name}'; make it with groupadd")
