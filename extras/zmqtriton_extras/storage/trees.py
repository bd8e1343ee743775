"""Objects as models: names, whether they can be names of files, and changes.

A user can upload objects with any name, so no name becomes a path before it is checked here. Does
no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from zmqtriton.sdk.wire import InvalidArgument

_MAX_PART = 255
_MAX_PATH = 2048
_MAX_PARTS = 64


class InvalidObjectName(InvalidArgument):
    """Raised for an object whose name is no path: it keeps its folder from being listed."""


class StoredObject(NamedTuple):
    """One object in a folder of a store."""

    #: Path of the object below the folder.
    path: str
    size: int
    #: Entity tag, which changes with the content; "" if the store has none.
    etag: str
    modified_at: datetime


class ModelTree(NamedTuple):
    """The files and folders of one model's objects."""

    files: dict[str, StoredObject]
    #: Paths of empty folders, which are objects without content in a store.
    directories: tuple[str, ...]
    objects_digest: str
    #: The model's own directory, whose files are not fetched, and a digest of these files.
    directory: str = ""
    fingerprint: str = ""

    @property
    def digest(self) -> str:
        """A mark that changes if any of the files changes."""
        return (
            f"{self.fingerprint} {self.objects_digest}" if self.directory else self.objects_digest
        )


def group_by_model(objects: Iterable[StoredObject]) -> dict[str, list[StoredObject]]:
    """Group objects by their first name, without tools' and hidden folders."""
    by_model: dict[str, list[StoredObject]] = {}
    for entry in objects:
        name, slash, rest = entry.path.partition("/")
        if slash and is_model_name(name):
            by_model.setdefault(name, []).append(entry._replace(path=rest))
    return by_model


def is_model_name(name: str) -> bool:
    return not name.startswith(".") and name not in ("", "__pycache__") and name.isprintable()


def digest(objects: Iterable[StoredObject]) -> str:
    """Return a digest that changes if any of the files changes."""
    made = hashlib.blake2b(digest_size=16)
    for path, size, tag, changed in sorted(objects):
        mark = tag or changed.isoformat()
        made.update(f"{path}\n{size} {mark}\n".encode("utf-8", "surrogatepass"))
    return made.hexdigest()


def build_tree(objects: list[StoredObject]) -> ModelTree:
    """Build the tree. Raises InvalidArgument if a name cannot be a file next to the others."""
    folders = {parent for entry in objects for parent in _parents(entry.path)}
    files: dict[str, StoredObject] = {}
    directories = []
    for entry in objects:
        _check(entry.path)
        # consoles make an empty object where a user makes a folder
        if not entry.size and (entry.path in folders or entry.path.isdecimal()):
            directories.append(entry.path)
        elif entry.path in folders:
            raise InvalidArgument(
                f"the object '{entry.path}' is both a file and a folder; rename one"
            )
        elif entry.path in files:
            raise InvalidArgument(f"two objects are the file '{entry.path}'; delete one")
        else:
            files[entry.path] = entry
    return ModelTree(files, tuple(sorted(directories)), digest(objects))


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _check(path: str) -> None:
    parts = path.split("/")
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    is_odd = any(part in ("", ".", "..") or not part.isprintable() for part in parts)
    if is_odd or max(sizes) > _MAX_PART or sum(sizes) > _MAX_PATH or len(parts) > _MAX_PARTS:
        raise InvalidArgument(
            f"the object {path[:200]!r} has a name that no file can have; rename it"
        )


def without(tree: ModelTree, own: Collection[str], directory: str, fingerprint: str) -> ModelTree:
    """Return the tree without files that the model's own directory overrides."""
    files = {path: entry for path, entry in tree.files.items() if path not in own}
    return tree._replace(files=files, directory=directory, fingerprint=fingerprint)


def missing_paths(tree: ModelTree, there: Mapping[str, tuple[int, str]]) -> list[str]:
    """Return the paths of files that are missing here; `there` has (size, tag) by path."""
    return [
        path
        for path, entry in tree.files.items()
        if not entry.etag or there.get(path) != (entry.size, entry.etag)
    ]
