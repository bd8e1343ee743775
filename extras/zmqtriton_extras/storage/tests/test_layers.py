"""Layers of images, as the upper ones leave those below; the archives are the tests'."""

from __future__ import annotations

import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_sources import layer, link
from zmqtriton_extras.storage.blobs import BlobCache
from zmqtriton_extras.storage.registry import merge_layers, unpack_layer
from zmqtriton_floor.errors import Cancelled, InternalError

A, B = b"a" * 10, b"b" * 20


def merged(cache: Path, *layers: dict[str, Any]) -> dict[str, bytes | str]:
    """Return the contents, or problems, by path."""
    kept = BlobCache(cache / "cache")
    unpacked = []
    for number, files in enumerate(layers):
        archive = cache / f"{number}.tar"
        archive.write_bytes(layer(files, is_compressed=number % 2 == 0))
        unpacked.append(unpack_layer(archive, kept, cache / "draft", threading.Event()))
    return {
        path: file.problem or kept.path(file.digest).read_bytes()
        for path, file in merge_layers(unpacked).items()
    }


def test_upper_layers_replace_and_remove_files(tmp_path: Path) -> None:
    lower = {"m/a": A, "m/b": A, "old/1/x": A, "old/2/x": A, "./dot": A, "/rooted": A}
    upper = {"m/b": B, "m/.wh.a": b"", "old/1/.wh..wh..opq": b"", "old/1/y": B}

    files = merged(tmp_path, lower, upper)

    expected = {"m/b": B, "old/2/x": A, "old/1/y": B, "dot": A, "rooted": A}
    assert expected == files


def test_a_whiteout_hides_nothing_of_its_own_layer(tmp_path: Path) -> None:
    assert {"m/a": B} == merged(tmp_path, {"m/a": A}, {"m/a": B, "m/.wh.a": b""})


def test_links_are_the_files_that_they_lead_to(tmp_path: Path) -> None:
    files = merged(
        tmp_path,
        {
            "blobs/x": A,
            "m/abs": "/blobs/x",
            "m/rel": "../blobs/x",
            "m/hard": link("m/hard", "blobs/x"),
        },
        {"m/again": "rel", "m/lower": link("m/lower", "blobs/x")},
    )

    assert dict.fromkeys(("blobs/x", "m/abs", "m/rel", "m/hard", "m/again", "m/lower"), A) == files


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "missing", "self", "."])
def test_a_link_to_anything_else_is_the_problem_of_its_model(tmp_path: Path, target: str) -> None:
    assert {"m/self": "a link that leads to no file of it"} == merged(tmp_path, {"m/self": target})


@pytest.mark.parametrize("path", ["../x", "m/../../x", "/../x", "m/.."])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InternalError, match=r"a layer has the path '.*\.\..*', which leads out"):
        merged(tmp_path, {path: A})

    assert not (tmp_path.parent / "x").exists()


def test_a_file_below_a_link_stays_below_it(tmp_path: Path) -> None:
    """Which on a disk would be written where the link leads."""
    assert A == merged(tmp_path, {"m": "/etc"}, {"m/x": A})["m/x"]


def test_pipes_and_devices_are_left_out(tmp_path: Path) -> None:
    fifo = link("m/pipe", "", tarfile.FIFOTYPE)

    assert {"m/a": A} == merged(tmp_path, {"m/pipe": fifo, "m/a": A})


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(layer({"m/a": A * 1000})[:-30])
    (tmp_path / "y").write_bytes(b"no archive")

    for name in ("x", "y"):
        with pytest.raises(InternalError, match="a layer must be a tar archive"):
            unpack_layer(tmp_path / name, BlobCache(tmp_path), tmp_path / "d", threading.Event())


def test_nobody_unpacks_what_is_not_wanted_any_more(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(layer({"m/a": A}))
    stop = threading.Event()
    stop.set()

    with pytest.raises(Cancelled):
        unpack_layer(tmp_path / "x", BlobCache(tmp_path), tmp_path / "d", stop)
