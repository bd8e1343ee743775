"""A model `m` on disk, read as a server reads it, for the supervisor's world without processes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.supervisor.readings import Readings
from tests.supervisor.world import SupervisorHarness
from zmqtriton.options import Options
from zmqtriton.reading.blueprint import Blueprint

PLAIN = 'input { name: "X" data_type: TYPE_FP32 dims: 1 }'


class ModelDirectory:
    """A repository with the model `m`, which has version 1."""

    def __init__(self, path: Path, config: str = PLAIN) -> None:
        self._path = path / "m"
        self.configure(config)
        self.add(1)

    def configure(self, config: str) -> None:
        self._path.mkdir(exist_ok=True)
        (self._path / "config.pbtxt").write_text(f'backend: "python" {config}')

    def add(self, version: int, code: str = "") -> None:
        """Add a version, or change its file."""
        (self._path / str(version)).mkdir(exist_ok=True)
        (self._path / str(version) / "model.py").write_text(f"# {version} {code}")

    def remove(self, version: int) -> None:
        (self._path / str(version) / "model.py").unlink()
        (self._path / str(version)).rmdir()

    def remove_all(self) -> None:
        shutil.rmtree(self._path)

    @property
    def reader(self) -> Readings:
        repository = self._path.parent
        state = repository / ".state"
        return Readings(Options(model_repository=(str(repository),), state_directory=str(state)))

    def read(self) -> Blueprint:
        blueprint = self.reader.read_model("m")
        assert isinstance(blueprint, Blueprint), blueprint
        return blueprint

    def serve(self, **policy: Any) -> SupervisorHarness:
        return self.server(**policy).start()

    def server(self, **policy: Any) -> SupervisorHarness:
        """Return a server that is not started yet."""
        policy = {"control_mode": "explicit", "startup_models": ("m",), **policy}
        world = SupervisorHarness(**policy)
        world.reader = self.reader
        return world


def load(world: SupervisorHarness) -> None:
    """Load the model as it is now, which has to succeed."""
    assert world.call("load", {"model": "m", "parameters": {}}).result in (None, "unchanged")
