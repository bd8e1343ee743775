"""Unpacks an untrusted archive into an empty directory, member by member.

The checks are our own on every Python, since tarfile has no filter in older ones. Nothing is
written through a link. When all members are unpacked, each link is followed once: it must end
inside, or be the interpreter of a virtual environment. Of file modes only the right to execute is
kept. If a name is there twice, the last member counts, as in tar, if both are files or both are
links.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import resource
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any, NamedTuple

from zmqtriton.sdk.models import Environment
from zmqtriton.sdk.process import StepProgress
from zmqtriton.sdk.wire import InternalError, Unsupported
from zmqtriton_standard.environments.reports import ByteCounter, Reporter


class _Silence:
    """A Reporter that does nothing, for a command that prints findings alone."""

    def log(self, level: str, text: str) -> None:
        pass

    def progress(self, latest: StepProgress) -> None:
        pass


def check_archive(path: str) -> None:
    """Raise the first fault of an archive: a forbidden member, or a missing one."""
    # opening must not wait for the writer of a pipe
    with (
        open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file,
        tempfile.TemporaryDirectory(prefix="zmqtriton-check-") as folder,
    ):
        unpack(path, file, Path(folder), _Silence(), ArchiveLimits(), has_contents=False)
        try:
            Environment.check_directory(str(environment_root(Path(folder))))
        except InternalError as error:
            raise InternalError(error.text.replace(folder, path)) from error


_CHUNK = 1 << 20
#: A header may ask for any amount, and tarfile would read it.
_EXTRA_MEMORY_BYTES = 512 << 20
_ARCHIVE_ERRORS = (tarfile.TarError, EOFError, zlib.error, LZMAError, ValueError, MemoryError)
_COMPRESSIONS = (
    (".gz", "gz"),
    (".tgz", "gz"),
    ("bz2", "bz2"),
    ("xz", "xz"),
    (".zst", "zst"),
)
#: CPython 3.14's venv makes one more, by the name of 𝜋thon.
_INTERPRETER_LINK = re.compile(r"bin/((python|pypy)[0-9.]*t?|𝜋thon)")
#: The environment's own former path in its scripts. conda-pack keeps it in files that do not come
#: from a package, and in links.
_PREFIX_PATTERNS = {
    "bin/activate": re.compile(r"""^\s*(?:export )?VIRTUAL_ENV=['"]?(/[^'"\n]+)['"]?\s*$""", re.M),
    "bin/conda-unpack": re.compile(r"""^\('[^'\n]*', '(/[^'\n]+)', '(?:text|binary)'\)""", re.M),
}
_SCRIPT_CHARACTERS = 32 << 20


class ArchiveLimits(NamedTuple):
    """Limits of an archive's size; a usual environment is far below them."""

    max_members: int = 500_000
    max_bytes: int = 64 << 30
    #: The ratio of the unpacked to the packed size, for large archives.
    max_ratio: int = 200
    always_allowed_bytes: int = 256 << 20


class RejectedArchive(InternalError):
    """Raised if an archive has a member that no environment may have."""


def unpack(
    path: str,
    file: IO[bytes],
    target: Path,
    reporter: Reporter,
    bounds: ArchiveLimits,
    *,
    has_contents: bool = True,
) -> None:
    """Unpack the open archive `file`; after an error `target` has only a part of it.

    Without contents most files are left empty, which shows whether all of it can be unpacked.
    """
    size = os.fstat(file.fileno()).st_size
    limit = min(bounds.max_bytes, max(bounds.always_allowed_bytes, bounds.max_ratio * size))
    if has_contents:
        limit = min(limit, shutil.disk_usage(target).free * 9 // 10)
    unpacking = _Unpacker(path, target, limit, bounds.max_members, has_contents=has_contents)
    counter = ByteCounter(f"Extracting Python execution env {path}", size, reporter)
    try:
        mode: Any = f"r|{_compression(path)}"
        counted: Any = _CountedFile(file, counter)
        with _limited_memory(), tarfile.open(fileobj=counted, mode=mode) as archive:
            remembered: Any = vars(archive)["members"]
            for member in archive:
                unpacking.extract(archive, member)
                remembered.clear()  # there may be hundreds of thousands
        unpacking.resolve_links()
    except (*_ARCHIVE_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # a full disk, and not bad data
            raise InternalError(
                f"{path} cannot be unpacked into {target}: {error}; "
                "--environment-directory names another place"
            ) from error
        raise InternalError(
            f"The archive {path} cannot be unpacked: {error}. Is it whole, and packed by "
            "conda-pack or tar?"
        ) from error


class _CountedFile(NamedTuple):
    """A file that reports how much of it was read; one member may be most of the archive."""

    file: IO[bytes]
    counter: ByteCounter

    def read(self, size: int) -> bytes:
        piece = self.file.read(size)
        self.counter.add(len(piece))
        return piece


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """Limit the memory of the process, so that MemoryError comes before the machine suffers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = pages * resource.getpagesize() + _EXTRA_MEMORY_BYTES
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _compression(path: str) -> str:
    name = next((name for end, name in _COMPRESSIONS if path.endswith(end)), "")
    if name == "zst" and name not in tarfile.TarFile.OPEN_METH:
        raise Unsupported(
            f"{path}: the server's Python cannot read zstd (3.14 can); pack it as .tar.gz"
        )
    return name


class _Unpacker:
    def __init__(
        self, path: str, target: Path, max_bytes: int, max_members: int, *, has_contents: bool
    ) -> None:
        self._path = path
        self._has_contents = has_contents
        self._target = target
        self._bytes_left = max_bytes
        self._members_left = max_members
        #: Made here, so no links.
        self._directories = {""}
        self._links: dict[str, str] = {}
        #: Name of the archive's only top directory, with `/`; "" if it has none.
        self._root_prefix = ""

    def _rejection(self, name: str, why: str) -> RejectedArchive:
        return RejectedArchive(
            f"The archive {self._path} is refused, pack it again: '{name[:200]}' {why}"
        )

    def extract(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._members_left -= 1
        if self._members_left < 0:
            raise self._rejection(member.name, "is one member too many")
        name = self._normalize_name(member.name)
        if not name:
            return  # the root itself
        if member.isdir():
            self._make_directories(name)
            return
        if not (member.isreg() or member.issym() or member.islnk()):
            raise self._rejection(name, "is neither file, directory nor link")
        self._make_directories(posixpath.dirname(name))
        original = self._normalize_name(member.linkname) if member.islnk() else ""
        if original == name:
            return  # tar adds a file for the second time as a link to itself
        self._remove_earlier(name, is_link=member.issym())
        if member.issym():
            self._add_symlink(name, member.linkname)
        elif member.islnk():
            self._add_hard_link(name, original)
        else:
            self._write(archive, member, name)

    def _remove_earlier(self, name: str, *, is_link: bool) -> None:
        """Remove the earlier member with this name: venv-pack adds pyvenv.cfg twice."""
        if not os.path.lexists(self._target / name):
            return
        if name in self._directories or (name in self._links) != is_link:
            raise self._rejection(name, "is in the archive twice, as two kinds")
        (self._target / name).unlink()

    def _normalize_name(self, name: str) -> str:
        """Return the name without a leading `./`; it must be relative and must not go up."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/"):
            raise self._rejection(name, "is an absolute name")
        if ".." in parts:
            raise self._rejection(name, "leads outside")
        if "\0" in name or len(name) > 4096:
            raise self._rejection(name, "is no name of a file")
        return "/".join(parts)

    def _make_directories(self, name: str) -> None:
        if name in self._directories:
            return
        parts = name.split("/")
        for depth in range(len(parts)):
            directory = "/".join(parts[: depth + 1])
            if directory in self._directories:
                continue
            try:
                os.mkdir(self._target / directory, 0o755)
            except FileExistsError:
                raise self._rejection(name, f"goes through '{directory}', a file or link") from None
            self._directories.add(directory)

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
        self._bytes_left -= member.size
        if self._bytes_left < 0:
            raise self._rejection(name, "is more than there may be, or is room for")
        source = archive.extractfile(member)
        assert source is not None  # it is a file
        mode = 0o755 if member.mode & 0o111 else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._target / name, flags, mode), "wb") as copy:
            if self._has_contents or name.endswith(tuple(_PREFIX_PATTERNS)):
                shutil.copyfileobj(source, copy, _CHUNK)
                if copy.tell() != member.size:
                    raise EOFError(f"'{name}' ends too early")
        # or every cached bytecode file would be out of date
        modified = min(max(0, int(member.mtime)), 0xFFFFFFFF)
        os.utime(self._target / name, (modified, modified))

    def _add_hard_link(self, name: str, existing: str) -> None:
        original = self._target / existing
        parent = posixpath.dirname(existing)
        if parent not in self._directories or not original.is_file() or original.is_symlink():
            raise self._rejection(name, f"is a link to '{existing}', which is no file before it")
        os.link(original, self._target / name, follow_symlinks=False)

    def _add_symlink(self, name: str, goal: str) -> None:
        if not goal or "\0" in goal:
            raise self._rejection(name, "is a link to nothing")
        self._links[name] = goal
        os.symlink(goal, self._target / name)

    # ------------------------------------------------------------------- links

    def resolve_links(self) -> None:
        """Check the targets of all links, once all files are unpacked."""
        inner = environment_root(self._target)
        if inner != self._target:
            self._root_prefix = f"{inner.name}/"
        places = self._original_prefixes()
        for name, goal in self._links.items():
            if goal.startswith("/"):
                self._relocate_link(name, posixpath.normpath(goal), places)
        root = os.path.realpath(self._target)
        for name in self._links:
            end = os.path.realpath(self._target / name)
            if end != root and not end.startswith(root + "/"):
                self._check_outside_link(name, end)

    def _original_prefixes(self) -> list[str]:
        """Return the possible paths of the environment before it was packed, from its scripts."""
        prefixes: set[str] = set()
        for name, pattern in _PREFIX_PATTERNS.items():
            script = self._target / self._root_prefix / name
            if script.is_file() and not script.is_symlink():
                with script.open(errors="replace") as file:
                    prefixes.update(pattern.findall(file.read(_SCRIPT_CHARACTERS)))
        return sorted((posixpath.normpath(place) for place in prefixes), reverse=True)

    def _relocate_link(self, name: str, goal: str, places: list[str]) -> None:
        """Replace a link to a former path by a link to the same file in the new place."""
        old = next((place for place in places if goal.startswith(place + "/")), "")
        if old:
            inside = self._root_prefix + goal[len(old) + 1 :]
            here = posixpath.relpath(inside, posixpath.dirname(name) or ".")
            (self._target / name).unlink()
            os.symlink(here, self._target / name)

    def _check_outside_link(self, name: str, end: str) -> None:
        is_python = _INTERPRETER_LINK.fullmatch(name.removeprefix(self._root_prefix)) is not None
        if not is_python or not os.path.isfile(self._target / self._root_prefix / "pyvenv.cfg"):
            raise self._rejection(
                name, f"is a link to '{self._links[name]}', outside the archive; pack a copy of it"
            )
        if not os.path.isfile(end) or not os.access(end, os.X_OK):
            raise self._rejection(
                name,
                f"leads to the interpreter {end}, which this machine does not have; install that "
                "Python here, or pack the environment with conda-pack, which includes it",
            )
        if _INTERPRETER_LINK.fullmatch(f"bin/{os.path.basename(end)}") is None:
            raise self._rejection(name, f"leads to {end}, which is no Python")


def environment_root(tree: Path) -> Path:
    """Return the environment's own directory: `tree`, or the only directory that it contains.

    Users pack the content of an environment, or the directory with it.
    """
    if (tree / "bin" / "activate").exists():
        return tree
    inside: list[Any] = list(tree.iterdir())
    if len(inside) == 1 and (inside[0] / "bin" / "activate").exists():
        return Path(inside[0])
    return tree
