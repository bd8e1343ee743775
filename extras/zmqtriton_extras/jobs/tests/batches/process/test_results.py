"""The lines of a batch as jobs: each is answered once, whatever becomes of a transaction."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.jobs.batches.process import results, tables
from zmqtriton_extras.jobs.batches.process.lines import Line
from zmqtriton_extras.jobs.batches.process.tables import VALIDATING, Batch, File
from zmqtriton_extras.jobs.process.store import (
    FILE_BYTES,
    SUCCEEDED,
    Limits,
    Outcome,
    Refused,
    Store,
)
from zmqtriton_extras.jobs.tests.batches.requests import CHAT

JSON = json.dumps([["content-type", "application/json"]])
INPUT = f"file-{'0' * 26}"
OWN_ID = f"batch_{'0' * 26}"


class World:
    """A store with a batch of some lines, and calls of it."""

    def __init__(self, directory: Path, lines: int = 3) -> None:
        self.directory = directory
        self.store = self.open()
        now_s = time.time()
        tables.add_file(self.store, File(INPUT, "ann", "batch", "f", 0, 99, now_s, 0.0, 0), 99)
        new: dict[str, Any] = dict.fromkeys(Batch._fields)
        new |= {"id": OWN_ID, "owner": "ann", "endpoint": CHAT, "input": INPUT, "window": "24h"}
        new |= {"metadata": "null", "state": VALIDATING, "created": now_s, "expires": now_s + 99}
        new["keep_s"] = 0
        tables.add_batch(self.store, Batch(**new))
        batch = results.begin(self.store, OWN_ID, lines)
        named = [("m", Line(f"line {n}", "m", b'{"model": "m"}')) for n in range(lines)]
        results.submit(self.store, batch, named, 99)

    def open(self) -> Store:
        store = Store(self.directory, Limits(100, 1 << 24))
        store.recover()
        tables.prepare(store)
        return store

    def run(self, reply: bytes = b"{}", state: str = SUCCEEDED, headers: str = JSON) -> None:
        """Execute the next line."""
        job = self.store.claim("m", False)
        assert job is not None
        status = 200 if state == SUCCEEDED else 500
        self.store.end(job, Outcome(state, status, headers, reply, "a reason"))

    @property
    def batch(self) -> Batch:
        return tables.find_batch(self.store, OWN_ID)

    def rows(self, name: str) -> list[Any]:
        """Return what an output has by its row."""
        own_id = self.batch.output if name == "output" else self.batch.error
        assert own_id is not None
        size = tables.find_file(self.store, own_id).bytes
        path = tables.path_of(self.directory, own_id)
        content = path.read_bytes()[:size] if path.exists() else b""
        return [json.loads(row) for row in content.splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.store.close()


def test_answers_are_written_once_though_a_transaction_is_lost(world: World) -> None:
    world.run(b'{"n": 1}')
    world.run(b'{"n": 2}')
    for _ in range(3):
        world.store.begin()
        assert results.collect(world.store, OWN_ID).collected == 2
        world.store.roll_back()
    world.store.close()
    world.store = world.open()

    progress = results.collect(world.store, OWN_ID)
    world.run(b'{"n": 3}')
    results.collect(world.store, OWN_ID)

    assert progress.under_way == 1
    assert [row["response"]["body"]["n"] for row in world.rows("output")] == [1, 2, 3]
    assert (world.batch.total, world.batch.completed, world.batch.failed) == (3, 3, 0)
    assert results.collect(world.store, OWN_ID).collected == 0


def test_a_line_is_one_line_whatever_its_answer_is(world: World) -> None:
    large = json.dumps({"text": "x" * (3 * FILE_BYTES)}, indent=1).encode()
    world.run(b'{\r\n"a":\n"b\\n"}')
    world.run(large)
    world.run(b"data: {}\n\n", headers=json.dumps([["content-type", "text/event-stream"]]))

    world.store.begin()
    results.collect(world.store, OWN_ID)
    world.store.commit()

    bodies = [row["response"]["body"] for row in world.rows("output")]
    assert [{"a": "b\n"}, json.loads(large)] == bodies
    [error] = world.rows("error")
    assert (error["response"], error["error"]["code"]) == (None, "server_error")
    assert list((world.directory / "bodies").iterdir()) == []


def test_jobs_of_a_batch_are_not_their_client_s(world: World) -> None:
    store = world.store
    world.run()
    job = store.newest(None)[-1].id

    assert store.newest("ann") == []
    assert store.some([SUCCEEDED]) == []
    for call in (
        lambda: store.find(job, "ann"),
        lambda: store.cancel(job, "ann"),
        lambda: store.purge([job]),
        lambda: store.retry([job]),
    ):
        with pytest.raises(Refused):
            call()


def test_what_is_asked_again_is_done_once(world: World) -> None:
    begun = world.batch
    new = begun._replace(state=VALIDATING, position=0, times="{}")

    assert begun == tables.add_batch(world.store, new)
    assert [begun] == tables.list_batches(world.store, "ann", 10, None)[0]

    own_id = str(begun.error)
    for owner, is_there in (("ben", True), ("ann", False), ("ann", False)):
        tables.show_file(world.store, own_id, 0)
        tables.delete_file(world.store, own_id, owner)
        files = tables.list_files(world.store, "ann", "", "asc", 10, None)[0]
        assert is_there == (own_id in {file.id for file in files})


def test_what_lies_on_disk_counts(world: World) -> None:
    before = world.store.taken_bytes()
    for _ in range(3):
        world.run(b'"' + b"x" * 5000 + b'"')
    assert before + 14_000 < world.store.taken_bytes() < before + 20_000

    results.collect(world.store, OWN_ID)
    while world.batch.state != "completed":
        results.end(world.store, OWN_ID)
    kept = world.store.taken_bytes()
    assert before + 10_000 < kept < before + 20_000

    tables.delete_file(world.store, str(world.batch.output), "ann")
    assert world.store.taken_bytes() < kept - 15_000
    assert world.batch.error is None


def test_files_that_were_never_promised_are_removed(world: World) -> None:
    kept = tables.path_of(world.directory, INPUT)
    kept.touch()
    tables.path_of(world.directory, "file-other").touch()
    world.store.close()

    world.store = world.open()

    assert os.listdir(kept.parent) == [INPUT]
