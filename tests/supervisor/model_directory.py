"""A model `m` on disk, read as a server reads it, for the supervisor's world without processes."""

from __future__ import annotations

from pathlib import Path

from tests.supervisor.world import SupervisorHarness
from zmqtriton.options import Options
from zmqtriton.supervisor.machine.model_reading import ModelReader
from zmqtriton.supervisor.models.blueprint import Blueprint


class ModelDirectory:
    """A directory with the model `m`."""

    def __init__(self, path: Path, config: str) -> None:
        self._path = path
        (path / "m" / "1").mkdir(parents=True)
        self.write("first", config)

    def write(self, code: str, config: str) -> ModelDirectory:
        (self._path / "m" / "1" / "model.py").write_text(f"# {code}")
        (self._path / "m" / "config.pbtxt").write_text(f'backend: "python" {config}')
        return self

    def read(self) -> Blueprint:
        options = Options(model_repository=(str(self._path),))
        found = ModelReader(options).read_model("m")
        assert isinstance(found, Blueprint), found
        return found

    def serve(self, **policy: object) -> SupervisorHarness:
        usual = {"control_mode": "explicit", "startup_models": ("m",)}
        return SupervisorHarness(self.read(), **usual, **policy).start()

    def load_into(self, world: SupervisorHarness) -> None:
        world.models["m"] = self.read()
        world.call("load", {"model": "m", "parameters": {}})
