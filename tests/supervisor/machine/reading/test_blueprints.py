"""Blueprints of what a reader has found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.machine.test_model_reading import CONFIG, add
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.model_config import Host, merge_completion
from zmqtriton.options import Options
from zmqtriton.repository.place import ModelPlace
from zmqtriton.supervisor.machine.model_reading import ModelReader
from zmqtriton.supervisor.machine.reading import blueprints
from zmqtriton.supervisor.machine.reading.findings import ModelReading
from zmqtriton.supervisor.machine.reading.plain import dumps, loads
from zmqtriton.supervisor.models.blueprint import Scale
from zmqtriton_floor.errors import InvalidArgument


def read(directory: Path, more: str = "", **options: Any) -> ModelReading:
    """Read a model as a reader does, and send it as one does."""
    add(directory, "m", CONFIG + more)
    reader = ModelReader(Options(model_repository=(str(directory),), **options))
    reading = reader.read("m", ModelPlace(directory / "m", directory))
    assert isinstance(reading, ModelReading)
    sent: ModelReading = loads(dumps(reading))
    return sent


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The answers of models that were looked at."""
    replies: list[str] = []

    def note(config: Any, reply: str, **more: Any) -> Any:
        replies.append(reply)
        return merge_completion(config, reply, **more)

    monkeypatch.setattr(blueprints, "merge_completion", note)
    return replies


def test_where_a_model_adds_nothing_its_reader_has_finished_the_configuration(
    tmp_path: Path, merged: list[str]
) -> None:
    reading = read(tmp_path)
    assert [""] == merged

    blueprint = blueprints.make_blueprint(reading, Host())
    finished = blueprint.finalize_config("")

    assert [""] == merged
    assert finished == blueprint.finalize_config(finished.config)
    assert ["", finished.config] == merged
    three = blueprint.scaled(Scale(3)).finalize_config("")
    assert 3 == len(three.slots) > len(finished.slots)


def test_an_error_that_its_reader_has_found_is_the_same(tmp_path: Path, merged: list[str]) -> None:
    reading = read(tmp_path, 'input { name: "I" data_type: TYPE_FP32 }')
    blueprint = blueprints.make_blueprint(reading, Host())

    with pytest.raises(InvalidArgument, match="'I' must specify 'dims'") as early:
        blueprint.finalize_config("")
    assert [""] == merged
    with pytest.raises(ConfigError) as later:
        blueprint.finalize_config(blueprint.config)
    assert (later.value.text, later.value.reason) == (early.value.text, early.value.reason)


def test_without_completion_there_is_nothing_to_finish_later(tmp_path: Path) -> None:
    reading = read(tmp_path, "max_batch_size: 4", strict_model_config=True)

    assert reading.finished is None
    assert reading.blueprint.final_config is not None
