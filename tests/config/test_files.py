from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton.config.errors import ConfigError
from zmqtriton.config.files import (
    inherit_labels,
    read_chat_template,
    read_client_files,
    read_labels,
)
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_floor.errors import InternalError
from zmqtriton_protos import ModelConfig


def config_of(template: str = "") -> Any:
    config = ModelConfig(name="m")
    if template:
        config.parameters["openai_chat_template"].string_value = template
    return config


def test_a_model_has_no_template_by_default(tmp_path: Path) -> None:
    assert ("", "") == read_client_files(config_of(), tmp_path, has_chats=True)


def test_a_template_has_a_usual_name_or_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("usual")
    (tmp_path / "own.jinja").write_text("own")

    assert ("", "usual") == read_client_files(config_of(), tmp_path, has_chats=True)
    assert ("", "own") == read_client_files(config_of("own.jinja"), tmp_path, has_chats=True)


def test_a_server_without_chats_reads_none(tmp_path: Path) -> None:
    assert ("", "") == read_client_files(config_of("missing.jinja"), tmp_path, has_chats=False)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("missing.jinja", InternalError, "failed to open text file"),
        ("large.jinja", ConfigError, "is larger than"),
        ("binary.jinja", ConfigError, "is no UTF-8"),
        ("../outside.jinja", ConfigError, "is outside model directory"),
        ("/etc/passwd", ConfigError, "is outside model directory"),
        ("link.jinja", ConfigError, "is outside model directory"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(
    name: str, error: type[Exception], text: str, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "outside.jinja").write_text("outside")
    (model / "large.jinja").write_bytes(b" " * ((1 << 20) + 1))
    (model / "binary.jinja").write_bytes(b"\xff")
    (model / "link.jinja").symlink_to(tmp_path / "outside.jinja")

    with pytest.raises(error, match=text):
        read_chat_template(config_of(name), model)


def test_a_usual_name_may_not_be_a_link_to_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    model = tmp_path / "m"
    model.mkdir()
    (model / "chat_template.jinja").symlink_to(tmp_path / "secret")

    with pytest.raises(ConfigError, match="is outside model directory"):
        read_chat_template(config_of(), model)


# ------------------------------------------------------------------- labels


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
