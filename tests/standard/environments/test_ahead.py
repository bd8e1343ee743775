"""The environments that the models of a repository need, without a server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, EnvironmentSpec
from zmqtriton_floor.errors import NotFound, ZmqTritonError
from zmqtriton_standard.environments import ahead


def test_the_models_of_a_repository_are_read(tmp_path: Path) -> None:
    for name, config in (
        ("plain", 'backend: "python"'),
        ("wanting", 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "python3.9" } }'),
        ("broken", "backend: ["),
        ("whole", 'platform: "ensemble" ensemble_scheduling { }'),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").touch()
        (tmp_path / name / "config.pbtxt").write_text(config)

    results = {
        entry.model: entry.result for entry in ahead.read_environments(tmp_path, may_build=False)
    }
    alone = list(ahead.read_environments(tmp_path / "wanting", may_build=False))

    assert SERVER_ENVIRONMENT == results["plain"]
    assert EnvironmentSpec("interpreter", python="python3.9") == results["wanting"]
    assert isinstance(results["broken"], ZmqTritonError)
    assert [("wanting", results["wanting"], True)] == alone
    with pytest.raises(NotFound):
        list(ahead.read_environments(tmp_path / "nothing", may_build=False))
    assert os.path.isdir(tmp_path / "plain")
