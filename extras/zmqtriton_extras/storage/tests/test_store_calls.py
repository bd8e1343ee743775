from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.reports import Reports
from zmqtriton_extras.storage import __main__ as store_calls
from zmqtriton_extras.storage.mirror import Mirror
from zmqtriton_extras.storage.tests.fake_store import FakeStore
from zmqtriton_floor.errors import InternalError


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeStore]:
    """By bucket."""
    by_bucket: dict[str, FakeStore] = {"one": FakeStore({}), "two": FakeStore({})}

    monkeypatch.setattr(store_calls, "_QUIET_S", 0.0)
    return by_bucket


def opener(stores: dict[str, FakeStore]) -> Any:
    async def open_store(url: str) -> FakeStore:
        return stores[url.partition("://")[2]]

    return open_store


def copy(
    stores: dict[str, FakeStore], tmp_path: Path, *, is_patient: bool = False
) -> dict[str, Any]:
    urls = ["s3://one", "s3://two"]
    return asyncio.run(
        store_calls.copy_model(
            Mirror(str(tmp_path), lambda number, model: Reports()),
            1,
            "m",
            urls,
            opener(stores),
            is_patient=is_patient,
        )
    )


def test_a_store_that_is_down_hides_nothing_of_the_others(
    stores: dict[str, FakeStore], tmp_path: Path
) -> None:
    stores["one"].is_down = True
    stores["two"].contents["m/1/model.py"] = b"x"

    names = asyncio.run(store_calls.list_models(["s3://one", "s3://two"], opener(stores)))

    assert ({"error": "it is down"}, ["m"]) == (names[0], list(names[1]["models"]))
    assert ["s3://two"] == copy(stores, tmp_path)["urls"]
    del stores["two"].contents["m/1/model.py"]
    with pytest.raises(InternalError, match="it is down"):
        copy(stores, tmp_path)


def test_what_two_stores_have_is_not_fetched(stores: dict[str, FakeStore], tmp_path: Path) -> None:
    for store in stores.values():
        store.contents["m/1/model.py"] = b"x"

    answer = copy(stores, tmp_path)

    assert (["s3://one", "s3://two"], "") == (answer["urls"], answer["directory"])
    assert [] == stores["one"].reads


@pytest.mark.row("F21")
def test_who_is_patient_waits_until_an_upload_is_over(
    stores: dict[str, FakeStore], tmp_path: Path
) -> None:
    store = stores["one"]
    store.changed = datetime.now(timezone.utc)
    store.contents["m/1/model.py"] = b"x"
    parts = ["m/config.pbtxt", "m/1/weights"]

    def upload() -> None:
        if store.listings > 1 and parts:
            store.contents[parts.pop()] = b"y"

    store.meanwhile = upload

    answer = copy(stores, tmp_path, is_patient=True)

    names = {
        str(p.relative_to(answer["directory"])) for p in Path(answer["directory"]).rglob("*.*")
    }
    assert {"config.pbtxt", "1/model.py"} == names
    assert (Path(answer["directory"]) / "1" / "weights").exists()
    # None of it twice: it was not begun before.
    assert 3 == len(store.reads)


def test_what_is_here_already_is_not_fetched_again(
    stores: dict[str, FakeStore], tmp_path: Path
) -> None:
    stores["one"].contents["m/1/model.py"] = b"x"
    first = copy(stores, tmp_path)
    stores["one"].reads.clear()

    assert first == copy(stores, tmp_path, is_patient=True)
    assert [] == stores["one"].reads


@pytest.mark.row("F21")
def test_a_name_that_cannot_be_a_file_is_the_model_s_problem(
    stores: dict[str, FakeStore], tmp_path: Path
) -> None:
    stores["one"].contents |= {"m/1/model.py": b"x", "m/1/../../outside": b"x"}

    answer = copy(stores, tmp_path)

    assert "has a name that no file can have" in answer["odd"]
    assert ("", True) == (answer["directory"], bool(answer["digest"]))
    assert [] == list(tmp_path.iterdir())
