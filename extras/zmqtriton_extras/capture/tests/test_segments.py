"""Records in files: their form, their limits, and disks that refuse them."""

from __future__ import annotations

import json
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.foreign_directories import foreign, needs_root, own_and_foreign
from tests.support.waiting import eventually
from zmqtriton_extras.capture.frames import REQUEST, RESPONSE, Frame
from zmqtriton_extras.capture.process import segments
from zmqtriton_extras.capture.process.assembly import Budget, Capture
from zmqtriton_extras.capture.process.segments import Segments
from zmqtriton_extras.capture.process.writer import Writer
from zmqtriton_extras.capture.records import Record, read, v2_request
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.tensors import encode_bytes
from zmqtriton_floor.wire import Tensor


def tensor(name: str, datatype: str, array: Any) -> Tensor:
    data = encode_bytes(array) if datatype == "BYTES" else array.tobytes()
    return Tensor(name, BY_NAME[datatype].number, list(array.shape), data)


def capture(*inputs: Tensor, **details: Any) -> Capture:
    request = {
        "time_s": 1_700_000_000.25,
        "model": "m",
        "version": 2,
        "is_decoupled": False,
        "token": "ann",
        "request_id": "r",
        "parameters": {"p": 1},
        "outputs": ["Y"],
        "omitted": [],
        "hashed": [],
        **details,
    }
    answer = {"parameters": {}, "after_ms": 1.5, "omitted": []}
    output = tensor("Y", "FP32", np.ones(2, np.float32))
    end = {"error": None, "duration_ms": 2.0, "stages": {"queue": 500_000}}
    frames = Frame(REQUEST, 1, request, inputs), [Frame(RESPONSE, 1, answer, [output])]
    return Capture(*frames, end, 100)


def written(directory: Path, *captures: Capture, limit: int = 0) -> list[Record]:
    kept = Segments(directory, limit)
    kept.open()
    for one in captures:
        kept.write(one)
    return list(read(directory))


def test_a_record_is_kserves_json_and_only_its_user_reads_it(tmp_path: Path) -> None:
    directory = tmp_path / "captures"
    [record] = written(directory, capture(tensor("X", "INT32", np.array([[1, 2]], np.int32))))

    document = record.document
    assert document["time"] == "2023-11-14T22:13:20.250000Z"
    assert tuple(document[key] for key in ("model", "version", "token", "error")) == (
        "m",
        2,
        "ann",
        None,
    )
    assert document["stages_ms"] == {"queue": 0.5}
    entry = {"name": "X", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}
    assert {
        "id": "r",
        "parameters": {"p": 1},
        "inputs": [entry],
        "outputs": [{"name": "Y"}],
    } == document["request"]
    assert document["responses"][0]["outputs"][0]["data"] == [1.0, 1.0]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.rglob("*"))}
    assert {0o700, 0o600} == modes


@pytest.mark.parametrize(
    ("datatype", "array", "file"),
    [
        ("FP32", np.array([1.5, -0.25], np.float32), ""),
        ("FP32", np.array([np.nan, np.inf], np.float32), ".npy"),
        ("FP32", np.arange(5000, dtype=np.float32), ".npy"),
        ("FP16", np.array([1.5], np.float16), ".npy"),
        ("BF16", np.array([16256], np.uint16), ".bin"),
        ("BOOL", np.array([True, False]), ""),
        ("UINT64", np.array([2**64 - 1], np.uint64), ""),
        ("INT8", np.zeros((0, 3), np.int8), ""),
        ("FP64", np.array([0.1, 1e-310]), ""),
        ("BYTES", np.array([b"a", b""], object), ""),
        ("BYTES", np.array([b"\xff"], object), ".bin"),
        ("BYTES", np.array([b"x" * 5000], object), ".bin"),
    ],
)
def test_every_tensor_comes_back_to_the_bit(
    tmp_path: Path, datatype: str, array: Any, file: str
) -> None:
    [record] = written(tmp_path, capture(tensor("../../X", datatype, array)))

    [entry] = record.document["request"]["inputs"]
    assert file == Path(entry.get("file", "")).suffix
    assert "/" not in entry.get("file", "")
    back = record.array(entry)
    assert (array.dtype, array.shape) == (back.dtype, back.shape)
    assert array.tolist() == back.tolist() or array.tobytes() == back.tobytes()
    head, parts = v2_request(record)
    [sent] = json.loads(head)["inputs"]
    assert ("data" in sent) == (not file)
    for path, size in parts:
        data = encode_bytes(array) if datatype == "BYTES" else array.tobytes()
        assert (data, len(data)) == (path.read_bytes()[-size:], size)
        assert size == sent["parameters"]["binary_data_size"]


@pytest.mark.parametrize(
    "damage",
    [
        # it claims 100 TB
        lambda data: data.replace(b"(5000,), ", b"(25000000000000,), "),
        lambda data: data[:50],
        lambda data: b"",
        lambda data: b"PK\x03\x04" + data,
        lambda data: data.replace(b"'<f4'", b"'|O8'"),
    ],
)
def test_a_damaged_file_is_an_error_with_the_name_of_its_tensor(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    [record] = written(tmp_path, capture(tensor("X", "FP32", np.arange(5000, dtype=np.float32))))
    [entry] = record.document["request"]["inputs"]
    path = record.segment / entry["file"]
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(InvalidArgument, match=f"'X' of {record.id} cannot be read: ."):
        record.array(entry)


def test_what_is_secret_is_left_out_or_hashed_with_a_key(tmp_path: Path) -> None:
    secret = tensor("S", "BYTES", np.array([b"123-45-6789"], object))
    more = {"hashed": ["S"], "omitted": ["PHOTO"]}
    first, second = written(tmp_path, capture(secret, **more), capture(secret, **more))

    text = "".join(path.read_text() for path in tmp_path.glob("*/*.jsonl"))
    assert "123-45-6789" not in text
    hashes = [record.document["request"]["inputs"][0]["hash"] for record in (first, second)]
    assert len(set(hashes)) == 1
    assert first.document["request"]["inputs"][1] == {"name": "PHOTO", "omitted": True}
    assert not first.is_whole
    with pytest.raises(InvalidArgument, match="'S' was not captured"):
        v2_request(first)
    [other] = written(tmp_path / "other", capture(secret, **more))
    assert hashes[0] != other.document["request"]["inputs"][0]["hash"]


def test_the_oldest_segments_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 25_000)
    large = [
        capture(tensor("X", "FP32", np.full(2500, number, np.float32)), request_id=str(number))
        for number in range(20)
    ]

    records = written(tmp_path, *large, limit=90_000)

    numbers = [int(record.document["request"]["id"]) for record in records]
    assert 4 <= len(numbers) <= 9
    assert sorted(numbers) == sorted(range(20))[-len(numbers) :]
    # another process goes on with what is there
    again = written(tmp_path, large[0], limit=90_000)
    assert len(again) <= len(records) + 1


def test_a_limit_below_the_size_of_a_segment_holds(tmp_path: Path) -> None:
    ones = capture(tensor("X", "FP32", np.ones(2500, np.float32)))

    records = written(tmp_path, *[ones] * 30, limit=90_000)

    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert 0 < len(records) < 10
    assert sum(sizes) <= 90_000


def test_a_disk_that_is_full_loses_the_record_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    kept = Segments(tmp_path, 0)
    kept.open()
    small = tensor("X", "INT32", np.array([1], np.int32))
    kept.write(capture(small))
    before = sorted(tmp_path.rglob("*"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            kept.write(capture(tensor("X", "FP32", np.ones(5000, np.float32))))
        with pytest.raises(OSError, match="too large"):
            kept.write(capture(small, parameters={"p": "x" * 8000}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    kept.write(capture(small))
    assert before == sorted(tmp_path.rglob("*"))
    assert len(list(read(tmp_path))) == 2


def test_the_writer_goes_on_after_an_error_and_gives_room_back(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no directory")
    budget = Budget(1000)
    writer = Writer(Segments(blocked, 0), budget)
    one = capture(tensor("X", "INT32", np.array([1], np.int32)))

    assert budget.take(one.size)
    writer.write([one])
    eventually(lambda: writer.failed, 30)
    blocked.unlink()
    assert budget.take(one.size)
    writer.write([one])
    writer.end()
    eventually(lambda: writer.has_ended, 30)

    assert (writer.failed, writer.written) == ({"m": 1}, {"m": 1})
    assert budget.held == 0


def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    written(tmp_path, capture(tensor("X", "INT32", np.array([1], np.int32))))
    [path] = tmp_path.glob("*/*.jsonl")
    path.write_text(path.read_text() + '{"id": "cut", "requ')

    assert len(list(read(tmp_path))) == 1
    assert len(list(read(path.parent))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [5]},
        {"datatype": "FP31"},
        {"data": ["x"]},
        {"datatype": "BYTES"},
        {"data": None, "file": "/etc/passwd"},
    ],
)
def test_a_tensor_that_somebody_has_changed_is_told_by_its_record(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    [record] = written(tmp_path, capture(tensor("X", "INT32", np.array([1, 2], np.int32))))
    [entry] = record.document["request"]["inputs"]
    changed = {k: v for k, v in {**entry, **change}.items() if v is not None}

    with pytest.raises(InvalidArgument, match=f"'X' of {record.id} cannot be read"):
        record.array(changed)


@needs_root
@foreign
def test_a_directory_of_another_user_is_not_taken(tmp_path: Path, is_link: bool) -> None:
    own, other = own_and_foreign(tmp_path, is_link=is_link)

    # the link may lead to any place, which the server would fill and clear for that user
    with pytest.raises(PermissionError, match="belongs to another user"):
        written(other, capture())
    assert [*own.iterdir(), *other.iterdir()] == []
    assert len(written(own, capture())) == 1
