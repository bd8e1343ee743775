"""Uploaded files: the whole form is stored, and the file is a part of it."""

from __future__ import annotations

import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton_extras.jobs.batches.process import tables
from zmqtriton_extras.jobs.batches.process.tables import INPUT, File
from zmqtriton_extras.jobs.messages import DISK, Body, new_id
from zmqtriton_extras.jobs.process.store import Refused, Store
from zmqtriton_extras.jobs.process.store_thread import StoreThread, refusal_of
from zmqtriton_extras.routes.backend.multipart import Part, RefusedError, parts_of

_MAX_FIELD_BYTES, _MAX_NAME = 4096, 255
#: Bytes of an upload after which the free space on disk is checked again.
_CHECKED_BYTES = 4 << 20
_SECONDS = re.compile(r"[1-9][0-9]{0,8}")
_MIN_KEEP_S, _MAX_KEEP_S = 3600, 30 * 24 * 3600


class Uploads:
    def __init__(self, store: StoreThread) -> None:
        self._store = store
        #: The bytes of files that are coming.
        self._arriving_bytes = 0

    async def receive(self, owner: str, content_type: str, body: Body) -> File:
        """Receive a file and store it. Raises Refused."""
        own_id = f"file-{new_id()}"
        path = tables.path_of(self._store.directory, own_id)
        arrived = _Arrived()
        try:
            with open(path, "xb", opener=_private) as file:
                await self._write(file, body, arrived)
                await DISK.run(os.fsync, file.fileno())
            await self._store.do(tables.sync_files)
            read = partial(_read, path, own_id, owner, content_type)
            row = await DISK.run(read)
            add = partial(tables.add_file, file=row, disk_bytes=arrived.bytes)
            return await self._store.do(add)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise refusal_of(error) from error
            raise
        finally:
            self._arriving_bytes -= arrived.bytes

    async def _write(self, file: Any, body: Body, arrived: _Arrived) -> None:
        checked = 0
        await self._check_room()
        async for part in body.parts():
            arrived.bytes += len(part)
            self._arriving_bytes += len(part)
            if arrived.bytes >= checked + _CHECKED_BYTES:
                checked = arrived.bytes
                await self._check_room()
            await DISK.run(file.write, part)
        await self._check_room()
        await DISK.run(file.flush)

    async def _check_room(self) -> None:
        """Raise Refused if all files that are being uploaded need too much room together."""
        await self._store.do(partial(Store.check_room, size=self._arriving_bytes))


class _Arrived:
    """The arrived part of a file."""

    bytes = 0


class _FileBytes:
    """A file as a body, whose slices are read at their first use."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self._size)
        return os.pread(self._descriptor, max(end - begin, 0), begin)


def _read(path: Path, own_id: str, owner: str, content_type: str) -> File:
    """Return the file that a form describes. Raises Refused."""
    fields: dict[str, str] = {}
    files: dict[str, Part] = {}
    with path.open("rb") as file:
        body = _FileBytes(file.fileno())
        try:
            for part in parts_of(content_type, body):
                if part.filename is not None:
                    files[part.name] = part
                elif part.end - part.begin > _MAX_FIELD_BYTES:
                    raise Refused(
                        400,
                        f"the field '{part.name[:64]}' can have at most {_MAX_FIELD_BYTES} bytes",
                    )
                else:
                    fields[part.name] = body[part.begin : part.end].decode()
        except RefusedError as error:
            raise Refused(*error.args) from None
        except UnicodeDecodeError as error:
            raise Refused(400, f"the fields of a form must be UTF-8: {error}") from None
    if fields.get("purpose") != INPUT:
        raise Refused(400, f"'purpose' must be '{INPUT}'")
    if "file" not in files:
        raise Refused(400, "the form needs a field 'file'")
    part = files["file"]
    name = part.filename or "upload"
    if len(name) > _MAX_NAME:
        raise Refused(400, f"the name of the file can have at most {_MAX_NAME} characters")
    anchor, text = (fields.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    seconds = int(text) if text is not None and _SECONDS.fullmatch(text) else text
    now_s, keep_s = time.time(), keep_s_of("expires_after", anchor, seconds)
    expires = now_s + keep_s if keep_s else 0.0
    size = part.end - part.begin
    return File(own_id, owner, INPUT, name, part.begin, size, now_s, expires, 0)


def keep_s_of(field: str, anchor: Any, seconds: Any) -> int:
    """Return the seconds that a client wants to keep files; 0 if it names none. Raises Refused."""
    if anchor is None and seconds is None:
        return 0
    is_time = type(seconds) is int and _MIN_KEEP_S <= seconds <= _MAX_KEEP_S
    if anchor != "created_at" or not is_time:
        limits = f"{_MIN_KEEP_S} to {_MAX_KEEP_S}"
        raise Refused(400, f"'{field}' must be {limits} seconds from 'created_at'")
    return int(seconds)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
