from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton.config.errors import ConfigError
from zmqtriton.config.files import inherit_labels, read_labels
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_floor.errors import InternalError


def config(**files: str) -> Any:
    return SimpleNamespace(
        output=[SimpleNamespace(name=name, label_filename=file) for name, file in files.items()]
    )


def test_a_label_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\n\n big dog \r\nb\xc3\xa4r\xff\n")

    labels = read_labels(config(A="labels.txt", B=""), tmp_path)

    assert {"A": ["cat", "", " big dog \r", "bär\ufffd"]} == json.loads(labels)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "labels.txt")

    with pytest.raises(InternalError, match="failed to open text file for read"):
        read_labels(config(A="labels.txt"), tmp_path)


def test_without_files_there_are_none(tmp_path: Path) -> None:
    assert "" == read_labels(config(A="", B=""), tmp_path)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InternalError) as error:
        read_labels(config(A="labels.txt"), tmp_path)

    path = tmp_path / "labels.txt"
    text = f"failed to open text file for read {path}: No such file or directory"
    assert text == error.value.text


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "labels.txt").open("wb") as file:
        file.truncate((8 << 20) + 1)

    with pytest.raises(ConfigError, match="is larger than"):
        read_labels(config(A="labels.txt"), tmp_path)


def test_outputs_of_an_ensemble_have_its_own_labels_or_those_of_their_step() -> None:
    config = parse_text(
        """name: "e" platform: "ensemble"
        output { name: "own" } output { name: "theirs" } output { name: "none" }
        ensemble_scheduling {
          step { model_name: "a" output_map { key: "A" value: "own" }
                 output_map { key: "B" value: "theirs" } output_map { key: "C" value: "between" } }
          step { model_name: "b" output_map { key: "O" value: "none" } } }"""
    )
    members = {"a": '{"A": ["1"], "B": ["2"], "C": ["3"]}', "b": ""}

    assert '{"own": ["mine"], "theirs": ["2"]}' == inherit_labels(
        config, '{"own": ["mine"]}', members
    )
    assert "" == inherit_labels(config, "", {"a": "", "b": ""})
