"""The thread of the store: work that fails is told to who waits for it, and to nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_directories import foreign, needs_root, own_and_foreign
from zmqtriton.sdk.files import check_owner
from zmqtriton_extras.jobs.messages import new_id
from zmqtriton_extras.jobs.process.store import (
    Limits,
    Refused,
    Store,
    Submission,
)
from zmqtriton_extras.jobs.process.store_thread import StoreThread
from zmqtriton_extras.jobs.process.troubles import Trouble


def submission() -> Submission:
    path = "/v2/models/m/infer"
    return Submission(new_id(), "", None, b"", "m", path, "", "[]", b"{}", 2)


def undo(store: Store) -> None:
    """Fail as SQLite does where an error of the disk has undone the transaction."""
    store.roll_back()
    raise sqlite3.OperationalError("disk I/O error")


async def play(test: Any, directory: Path) -> None:
    store = StoreThread(directory, Limits())
    try:
        await asyncio.wait_for(store.opened, 30)
        await test(store)
    finally:
        await store.close()


def test_work_of_a_transaction_that_the_disk_has_undone_is_not_kept(tmp_path: Path) -> None:
    async def test(store: StoreThread) -> None:
        is_busy, all_wait = threading.Event(), threading.Event()

        def wait(_: Store) -> None:
            is_busy.set()
            all_wait.wait(30)

        gate = store.do(wait)
        await asyncio.to_thread(is_busy.wait, 30)
        works: list[asyncio.Future[Any]] = [
            store.do(partial(Store.submit, job=submission())),
            store.do(undo),
            store.do(partial(Store.submit, job=submission())),
        ]
        all_wait.set()

        await gate
        ends = await asyncio.gather(*works, return_exceptions=True)

        assert [sqlite3.OperationalError] * 3 == [type(end) for end in ends]
        assert await store.do(Store.counts) == {}

    asyncio.run(play(test, tmp_path))


def test_work_that_fails_is_undone_alone(tmp_path: Path) -> None:
    def submit_and_fail(store: Store) -> None:
        store.submit(submission())
        raise Refused(409, "not now")

    async def test(store: StoreThread) -> None:
        works: list[asyncio.Future[Any]] = [
            store.do(submit_and_fail),
            store.do(partial(Store.submit, job=submission())),
        ]

        ends = await asyncio.gather(*works, return_exceptions=True)

        assert str(ends[0]) == "not now"
        assert await store.do(Store.counts) == {("m", "queued"): 1}

    asyncio.run(play(test, tmp_path))


def test_work_that_is_repeated_tells_a_trouble_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = Trouble("it cannot be", "it can be again")

    async def test(store: StoreThread) -> None:
        for _ in range(2):
            await store.attempt(undo, trouble, "a")
        assert await store.attempt(Store.counts, trouble, "a") == {}

    asyncio.run(play(test, tmp_path))
    texts = [text for text in caplog.messages if text.startswith("it ")]
    assert texts == ["it cannot be, and it is tried again: disk I/O error", "it can be again"]


def test_no_other_user_can_read_the_database(tmp_path: Path) -> None:
    """Also one of a directory that was there, whose files were open to others."""
    tmp_path.chmod(0o755)
    (tmp_path / "jobs.sqlite").touch(0o644)

    store = Store(tmp_path)
    files = sorted(tmp_path.glob("jobs.sqlite*"))
    modes = {file.name: file.stat().st_mode & 0o777 for file in files}
    store.close()

    assert {"jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm"} <= modes.keys()
    assert {0o600} == set(modes.values())


@needs_root
@foreign
def test_a_directory_of_another_user_is_not_taken(tmp_path: Path, is_link: bool) -> None:
    own, other = own_and_foreign(tmp_path, is_link=is_link)

    check_owner(own)
    # root reads any file, so the user of the server must not be followed into this one
    with pytest.raises(PermissionError, match="belongs to another user"):
        check_owner(other)
