"""The rows of files and batches, in the database of jobs.

Each function is one piece of work in the store's thread. Rows that a client may not see are refused
like missing ones.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton_extras.jobs.process.store import Refused, Store, synchronise

VALIDATING, IN_PROGRESS, FINALIZING = "validating", "in_progress", "finalizing"
CANCELLING, EXPIRING = "cancelling", "expiring"
COMPLETED, FAILED, EXPIRED, CANCELLED = "completed", "failed", "expired", "cancelled"
ENDS = (COMPLETED, FAILED, EXPIRED, CANCELLED)
INPUT, OUTPUT = "batch", "batch_output"
#: The batches of an owner that are under way at a time; the others wait.
MAX_UNDER_WAY = 8
_ROW_BYTES = 1024
_SWEPT_AT_ONCE = 200
_DIRECTORY = "files"
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS files(
      number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL,
      purpose TEXT NOT NULL, name TEXT NOT NULL, begin INTEGER NOT NULL, bytes INTEGER NOT NULL,
      disk_bytes INTEGER NOT NULL, created REAL NOT NULL, expires REAL NOT NULL,
      is_shown INTEGER NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS file_owners ON files(owner, number)",
    "CREATE INDEX IF NOT EXISTS file_ends ON files(expires)",
    """CREATE TABLE IF NOT EXISTS batches(
      number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL,
      endpoint TEXT NOT NULL, input TEXT NOT NULL, "window" TEXT NOT NULL, metadata TEXT NOT NULL,
      state TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, ended REAL,
      times TEXT NOT NULL DEFAULT '{}', position INTEGER NOT NULL DEFAULT 0,
      total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0,
      failed INTEGER NOT NULL DEFAULT 0, output TEXT, error TEXT, faults TEXT,
      keep_s INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX IF NOT EXISTS batch_owners ON batches(owner, number)",
    "CREATE INDEX IF NOT EXISTS batches_under_way ON batches(number) WHERE ended IS NULL",
    "CREATE INDEX IF NOT EXISTS batch_inputs ON batches(input) WHERE ended IS NULL",
    "CREATE INDEX IF NOT EXISTS batch_ends ON batches(ended) WHERE ended IS NOT NULL",
    f"""CREATE TRIGGER IF NOT EXISTS more_files AFTER INSERT ON files BEGIN
      INSERT INTO kept VALUES('files', new.disk_bytes + {_ROW_BYTES})
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes; END""",
    f"""CREATE TRIGGER IF NOT EXISTS less_files AFTER DELETE ON files BEGIN
      UPDATE kept SET bytes = bytes - old.disk_bytes - {_ROW_BYTES} WHERE what = 'files'; END""",
    """CREATE TRIGGER IF NOT EXISTS longer_files AFTER UPDATE OF disk_bytes ON files BEGIN
      UPDATE kept SET bytes = bytes + new.disk_bytes - old.disk_bytes WHERE what = 'files'; END""",
    f"""CREATE TRIGGER IF NOT EXISTS more_batches AFTER INSERT ON batches BEGIN
      INSERT INTO kept VALUES('batches', {_ROW_BYTES})
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes; END""",
    f"""CREATE TRIGGER IF NOT EXISTS less_batches AFTER DELETE ON batches BEGIN
      UPDATE kept SET bytes = bytes - {_ROW_BYTES} WHERE what = 'batches'; END""",
)


class File(NamedTuple):
    id: str
    owner: str
    purpose: str
    #: Name that its client gave it; never used as a path.
    name: str
    #: Offset of its contents on disk, and their length.
    begin: int
    bytes: int
    created: float
    expires: float
    number: int


class Batch(NamedTuple):
    id: str
    owner: str
    endpoint: str
    input: str
    window: str
    metadata: str
    state: str
    created: float
    expires: float
    #: When it came into its states, by state.
    times: str
    #: The place of the next line that is no job yet, in the contents of its input.
    position: int
    total: int
    completed: int
    failed: int
    output: str | None
    error: str | None
    #: The faults of its input.
    faults: str | None
    #: Seconds that its outputs are kept; 0 if its client does not say.
    keep_s: int
    number: int


_FILE = ", ".join(File._fields)
_BATCH = ", ".join(f'"{name}"' for name in Batch._fields)


def prepare(store: Store) -> None:
    """Make the tables, and remove files without a row."""
    for statement in _SCHEMA:
        store.execute(statement)
    columns = {row[1] for row in store.execute("PRAGMA table_info(batches)")}
    if "keep_s" not in columns:  # made by an earlier version
        store.execute("ALTER TABLE batches ADD COLUMN keep_s INTEGER NOT NULL DEFAULT 0")
    directory = store.directory / _DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    ids = {row[0] for row in store.execute("SELECT id FROM files")}
    for file in directory.iterdir():
        if file.name not in ids:
            file.unlink()


def path_of(directory: Path, file: str) -> Path:
    """Return the path of a file; the ids are made by the server."""
    return directory / _DIRECTORY / file


def sync_files(store: Store) -> None:
    """Make the names of new files durable."""
    synchronise(store.directory / _DIRECTORY)


# ---------------------------------------------------------------------- files


def add_file(store: Store, file: File, disk_bytes: int, *, is_shown: bool = True) -> File:
    expires = file.expires or file.created + store.limits.keep_s
    store.execute(
        "INSERT INTO files(id, owner, purpose, name, begin, bytes, disk_bytes, created, expires, "
        "is_shown) VALUES (?,?,?,?,?,?,?,?,?,?)",
        (*file[:6], disk_bytes, file.created, expires, is_shown),
    )
    return find_file(store, file.id)


def find_file(store: Store, file: str, owner: str | None = None) -> File:
    """Return a file that this owner may see; None for any file. Raises Refused."""
    row = store.execute(
        f"SELECT {_FILE} FROM files WHERE id=? AND (? IS NULL OR owner=? AND is_shown)",
        (file, owner, owner),
    ).fetchone()
    if row is None:
        raise Refused(404, f"No such File object: {file}")
    return File(*row)


def list_files(
    store: Store, owner: str, purpose: str, order: str, limit: int, after: str | None
) -> tuple[list[File], bool]:
    """Return a part of the files of an owner, and whether there are more."""
    is_rising = order == "asc"
    start = _start(is_rising, find_file(store, after, owner).number if after else None)
    rows = store.execute(
        f"SELECT {_FILE} FROM files WHERE owner=? AND is_shown AND (?='' OR purpose=?) "
        f"AND number{'>' if is_rising else '<'}? ORDER BY number {'ASC' if is_rising else 'DESC'} "
        "LIMIT ?",
        (owner, purpose, purpose, start, limit + 1),
    ).fetchall()
    return [File(*row) for row in rows[:limit]], len(rows) > limit


def _start(is_rising: bool, number: int | None) -> int:
    return (0 if is_rising else 1 << 62) if number is None else number


def delete_file(store: Store, file: str, owner: str) -> None:
    """Remove a file of an owner, if it is still there. Raises Refused if a batch needs it."""
    try:
        find_file(store, file, owner)
    except Refused:
        return
    user = store.execute("SELECT id FROM batches WHERE input=? AND ended IS NULL", (file,))
    if (batch := user.fetchone()) is not None:
        raise Refused(
            409, f"{file} is the input of {batch[0]}, which has not ended: cancel it first"
        )
    remove_file(store, file)


def remove_file(store: Store, file: str) -> None:
    store.execute("DELETE FROM files WHERE id=?", (file,))
    store.remove_files(path_of(store.directory, file))


def show_file(store: Store, file: str, keep_s: int) -> None:
    """Make a complete output visible to its owner; its time to live begins."""
    expires = time.time() + (keep_s or store.limits.keep_s)
    store.execute("UPDATE files SET is_shown=1, expires=? WHERE id=?", (expires, file))


def set_size(store: Store, file: str, size: int) -> None:
    """Record the size of an output."""
    store.execute("UPDATE files SET bytes=?, disk_bytes=? WHERE id=?", (size, size, file))


# -------------------------------------------------------------------- batches


def add_batch(store: Store, batch: Batch) -> Batch:
    """Store a batch with an input file of its owner, once. Raises Refused."""
    if store.execute("SELECT 1 FROM batches WHERE id=?", (batch.id,)).fetchone():
        return find_batch(store, batch.id)
    if find_file(store, batch.input, batch.owner).purpose != INPUT:
        raise Refused(400, f"the purpose of {batch.input} must be '{INPUT}'")
    store.check_room(_ROW_BYTES)
    store.execute(
        'INSERT INTO batches(id, owner, endpoint, input, "window", metadata, state, created, '
        "expires, keep_s) VALUES (?,?,?,?,?,?,?,?,?,?)",
        (*batch[:9], batch.keep_s),
    )
    return find_batch(store, batch.id)


def find_batch(store: Store, batch: str, owner: str | None = None) -> Batch:
    """Return a batch of this owner, None for any owner. Raises Refused."""
    row = store.execute(
        f"SELECT {_BATCH} FROM batches WHERE id=? AND (? IS NULL OR owner=?)", (batch, owner, owner)
    ).fetchone()
    if row is None:
        raise Refused(404, f"No batch found with id '{batch}'.")
    return Batch(*row)


def list_batches(
    store: Store, owner: str | None, limit: int, after: str | None
) -> tuple[list[Batch], bool]:
    """Return a part of the batches of an owner or of all, and whether there are more."""
    start = _start(False, find_batch(store, after, owner).number if after else None)
    of_owner = "1" if owner is None else "owner=:owner"  # as text, so that each has its index
    rows = store.execute(
        f"SELECT {_BATCH} FROM batches WHERE {of_owner} AND number<:start "
        "ORDER BY number DESC LIMIT :limit",
        {"owner": owner, "start": start, "limit": limit + 1},
    ).fetchall()
    return [Batch(*row) for row in rows[:limit]], len(rows) > limit


def next_batches(store: Store) -> list[str]:
    """Return the batches that should run: the oldest of each owner."""
    statement = "SELECT DISTINCT owner FROM batches WHERE ended IS NULL"
    owners = [row[0] for row in store.execute(statement)]
    return [
        row[0]
        for owner in owners
        for row in store.execute(
            "SELECT id FROM batches WHERE ended IS NULL AND owner=? ORDER BY number LIMIT ?",
            (owner, MAX_UNDER_WAY),
        )
    ]


def enter(store: Store, batch: str, state: str, **values: Any) -> Batch:
    """Set the state of a batch, with further fields of its row."""
    row = find_batch(store, batch)
    now_s = time.time()
    values |= {"state": state, "times": json.dumps(json.loads(row.times) | {state: now_s})}
    if state in ENDS:
        values["ended"] = now_s
    change(store, batch, **values)
    return find_batch(store, batch)


def change(store: Store, batch: str, **values: Any) -> None:
    names = ", ".join(f"{name}=?" for name in values)
    store.execute(f"UPDATE batches SET {names} WHERE id=?", (*values.values(), batch))


def sweep(store: Store) -> bool:
    """Remove expired files and batches; return whether there may be more."""
    now_s = time.time()
    over = store.execute(
        "SELECT id FROM files WHERE expires<? AND is_shown AND NOT EXISTS("
        "SELECT 1 FROM batches WHERE input=files.id AND ended IS NULL) LIMIT ?",
        (now_s, _SWEPT_AT_ONCE),
    ).fetchall()
    for (file,) in over:
        remove_file(store, file)
    old = store.execute(
        "SELECT id FROM batches WHERE ended<? LIMIT ?",
        (now_s - store.limits.keep_s, _SWEPT_AT_ONCE),
    ).fetchall()
    for row in old:
        store.execute("DELETE FROM batches WHERE id=?", row)
    return _SWEPT_AT_ONCE in (len(over), len(old))
