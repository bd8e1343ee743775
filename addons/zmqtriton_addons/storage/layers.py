"""Layers of images and artifacts: archives whose files lie in the cache, one upon the other.

Nothing is unpacked to a path that an archive names.
"""

from __future__ import annotations

import posixpath
import tarfile
import threading
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from zmqtriton_addons.storage.blobs import BlobCache
from zmqtriton_addons.storage.file_stores import RemoteFile
from zmqtriton_floor.errors import InternalError

FILE, FOLDER, LINK, WHITEOUT, OPAQUE = "file", "folder", "link", "whiteout", "opaque"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MAX_ENTRIES = 1_000_000
_MAX_HOPS = 40


class LayerEntry(NamedTuple):
    kind: str
    path: str
    size: int = 0
    #: The digest of a file, the target of a link from the root of all.
    content: str = ""


def unpack(archive: Path, cache: BlobCache, draft: Path, stop: threading.Event) -> list[LayerEntry]:
    """Keep the files of a layer and return its entries.

    Raises InternalError for an archive that cannot be read, or with a path that leads out of it.
    """
    entries: list[LayerEntry] = []
    contents: dict[str, LayerEntry] = {}
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                entry = _entry_of(member, contents)
                if entry is None:
                    continue
                if member.isreg():
                    source = tar.extractfile(member)
                    assert source is not None
                    digest = cache.keep(source, member.size, draft, stop)
                    entry = entry._replace(size=member.size, content=digest)
                contents[entry.path] = entry
                entries.append(entry)
                if len(entries) > _MAX_ENTRIES:
                    raise InternalError(f"a layer has more than {_MAX_ENTRIES} entries")
    except (tarfile.TarError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InternalError(f"a layer is no tar archive that can be read: {error}") from None
    return entries


def _entry_of(member: tarfile.TarInfo, contents: dict[str, LayerEntry]) -> LayerEntry | None:
    path = clean(member.name)
    folder, name = posixpath.split(path)
    if member.isdir():
        # an empty one may be a version
        return LayerEntry(FOLDER, path) if name.isdecimal() else None
    if name == _OPAQUE:
        return LayerEntry(OPAQUE, folder)
    if name.startswith(_WHITEOUT):
        return LayerEntry(WHITEOUT, posixpath.join(folder, name[len(_WHITEOUT) :]))
    if member.islnk():
        target = clean(member.linkname)
        there = contents.get(target)
        return there._replace(path=path) if there else LayerEntry(LINK, path, 0, target)
    if member.issym():
        return LayerEntry(LINK, path, 0, posixpath.join("/", folder, member.linkname))
    if not member.isreg():
        return None  # a device or a pipe of an image; no model has one
    return LayerEntry(FILE, path)


def clean(path: str) -> str:
    """Return a path of an archive from its root. Raises InternalError for one that leads out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InternalError(f"a layer has the path {path[:200]!r}, which leads out of it")
    return "/".join(parts)


def merge(layers: Iterable[Sequence[LayerEntry]]) -> dict[str, RemoteFile]:
    """Return the files by path, as the upper layers leave those below."""
    merged: dict[str, LayerEntry] = {}
    for entries in layers:
        for kind, path, _, _ in entries:
            if kind in (WHITEOUT, OPAQUE):
                _remove(merged, path, is_whole=kind == WHITEOUT)
        for entry in entries:
            if entry.kind == FOLDER:
                merged.setdefault(entry.path, entry)
            elif entry.kind in (FILE, LINK):
                if entry.path not in merged:
                    _remove(merged, entry.path, is_whole=False)
                merged[entry.path] = entry
    return {path: _resolve(path, merged) for path in merged}


def _remove(merged: dict[str, LayerEntry], path: str, *, is_whole: bool) -> None:
    start = f"{path}/" if path else ""
    for name in [n for n in merged if n.startswith(start) or (is_whole and n == path)]:
        del merged[name]


def _resolve(path: str, merged: dict[str, LayerEntry]) -> RemoteFile:
    entry = merged[path]
    for _ in range(_MAX_HOPS):
        if entry.kind in (FILE, FOLDER):
            return RemoteFile(entry.size, entry.content, entry.path)
        target = posixpath.normpath(f"/{entry.content}").lstrip("/")
        if target not in merged or merged[target].kind == FOLDER:
            break
        entry = merged[target]
    return RemoteFile(0, "", path, "a link that leads to no file of it")
