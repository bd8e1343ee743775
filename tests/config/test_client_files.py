from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zmqtriton.config.errors import ConfigError
from zmqtriton.config.files import read_chat_template, read_client_files
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
