"""Names, suffixes and content types of files, without a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.functions.backend.media import (
    Audio,
    File,
    Image,
    MediaKind,
    Several,
    said_of,
)


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"\x89PNG\r\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", "image/png"),
        (b"", "image/png"),
    ],
)
def test_the_first_bytes_say_what_a_picture_is(data: bytes, content_type: str) -> None:
    assert content_type == Image(data).content_type == Image(memoryview(data)).content_type


def test_what_a_client_says_is_for_files_that_do_not_show_what_they_are() -> None:
    assert "text/csv" == File(b"\x89PNG", content_type="text/csv").content_type
    assert "application/octet-stream" == File(b"\x89PNG").content_type
    assert "image/png" == Image(b"\x89PNG", content_type="image/jpeg").content_type
    assert "image/heic" == Image(b"x", content_type="image/heic").content_type
    assert "audio/ogg" == Audio(b"OggS").content_type


@pytest.mark.parametrize(
    ("given", "content_type", "name", "suffix"),
    [
        ("cat.jpg", "", "cat.jpg", ".jpg"),
        ("../../etc/cat.tar.gz", "", "cat.tar.gz", ".gz"),
        ("C:\\pictures\\cat.png", "image/jpeg", "cat.png", ".png"),
        ("", "text/csv; charset=utf-8", "", ".csv"),
        ("", "no type", "", ""),
        ("..", "", "", ""),
        ("a/", "", "", ""),
        ("a\0\ud800b.txt", "", "ab.txt", ".txt"),
        (f"{'é' * 200}.txt", "", f"{'é' * 125}.txt", ".txt"),
    ],
)
def test_a_name_is_one_of_a_file(given: str, content_type: str, name: str, suffix: str) -> None:
    file = File(b"a", given, content_type)

    assert (name, suffix) == (file.name, file.suffix)
    assert suffix == os.path.splitext(file.path)[1]
    assert b"a" == Path(file.path).read_bytes() == file.data


def test_a_path_with_a_suffix_goes_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file: Any = File(b"a", "cat.jpg")
    assert tmp_path in Path(file.path).parents

    del file

    assert [] == [*tmp_path.iterdir()]


def test_parameters_of_a_request_name_a_file() -> None:
    said = {"file.filename": "a.csv", "file.content_type": "text/csv", "other.filename": 1}
    array = np.array([b"a"], object)
    kind = MediaKind(File)

    file = kind.decode(array, "file", said)

    assert ("a.csv", "text/csv", b"a") == (file.name, file.content_type, file.data)
    assert "1" == kind.decode(array, "other", said).name
    assert "" == kind.decode(array).name


def test_files_of_a_list_have_names_of_their_own() -> None:
    said = said_of([("files.0", "a.csv", ""), ("files.1", "", "text/html")])

    first, second = Several(MediaKind(File)).decode(np.array([b"a", b"b"], object), "files", said)

    assert ("a.csv", "", ".csv") == (first.name, second.name, first.suffix)
    assert ("text/html", b"b") == (second.content_type, second.data)
