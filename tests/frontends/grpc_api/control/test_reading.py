"""Messages of RPCs that control the server: bounded, or read in turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeCall
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.grpc_api.control import reading
from zmqtriton_frontends.grpc_api.control.reading import MAX_BYTES, MAX_FIELDS, read, read_load
from zmqtriton_protos import message

LOAD = message("inference.RepositoryModelLoadRequest")
#: An entry of a map without a key.
ENTRY = b"\x1a\x00"


def load_of(data: bytes) -> tuple[Any, dict[str, memoryview], int]:
    """Return what is read of a load, and how often others had their turns."""
    call = FakeCall()
    request, files = asyncio.run(read_load(data, call))
    return request, files, call.turns


def written(**files: int) -> tuple[Any, bytes]:
    load: Any = LOAD(model_name="m")
    load.parameters["config"].string_param = "{}"
    for name, size in files.items():
        load.parameters[f"file:{name}"].bytes_param = bytes([size % 251]) * size
    return load, load.SerializeToString()


@pytest.mark.parametrize("sizes", [(5,), (70_000,), (3_000_000, 0, 17_000, 100, 1 << 20)])
def test_a_load_is_read_whole_and_its_large_files_are_not_copied(sizes: tuple[int, ...]) -> None:
    load, data = written(**{f"f{number}": size for number, size in enumerate(sizes)})

    request, files, _ = load_of(data)

    assert all(file.obj is data for file in files.values())
    assert {f"file:f{n}" for n, size in enumerate(sizes) if size > 16_384} >= set(files)
    for name, content in files.items():
        request.parameters[name].bytes_param = bytes(content)
    assert load == request


def test_others_have_turns_while_a_load_of_many_files_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_TURN_S", 0.0)
    load, data = written(**{f"f{number}": 200 for number in range(4000)})

    request, files, turns = load_of(data)

    assert load == request
    assert not files
    assert turns >= len(data) // 16_384 // 2


@pytest.mark.parametrize(
    "data",
    [
        ENTRY * (MAX_FIELDS + 1) + bytes((0x0A, 3)) + b"x" * 3 + ENTRY * MAX_BYTES,
        LOAD(model_name="m" * (2 << 20)).SerializeToString(),
        LOAD(parameters={"config": {"string_param": "x" * (2 << 20)}}).SerializeToString(),
        LOAD(parameters={"else": {"bytes_param": b"x" * (2 << 20)}}).SerializeToString(),
    ],
    ids=["many fields", "a long name", "a long config", "no file"],
)
def test_what_would_take_long_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="a load"):
        load_of(data)


@pytest.mark.parametrize("cut", [1, 1000, 2_999_000])
def test_a_load_that_is_cut_off_is_malformed(cut: int) -> None:
    _, data = written(f=3_000_000)

    with pytest.raises(InvalidArgument, match="RepositoryModelLoadRequest"):
        load_of(data[:-cut])


@pytest.mark.parametrize("name", ["LogSettings", "TraceSetting", "RepositoryIndex"])
def test_what_controls_the_server_is_short(name: str) -> None:
    kind = message(f"inference.{name}Request")
    assert read(kind, b"") == kind()

    with pytest.raises(InvalidArgument, match=f"{name}Request has at most 65536 bytes, not 65538"):
        read(kind, ENTRY * (MAX_BYTES // 2 + 1))
