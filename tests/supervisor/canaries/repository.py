"""A server whose model has several versions on disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.supervisor.world import SupervisorHarness
from zmqtriton.options import Options
from zmqtriton.supervisor.machine.model_reading import ModelReader
from zmqtriton_floor import wire

PLAIN = 'input { name: "X" data_type: TYPE_FP32 dims: 1 }'


class Repository:
    """A directory with the model `m`, which has version 1."""

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

    def serve(self, **policy: Any) -> SupervisorHarness:
        policy = {"control_mode": "explicit", "startup_models": ("m",), **policy}
        world = SupervisorHarness(**policy)
        world.reader = ModelReader(Options(model_repository=(str(self._path.parent),)))
        return world.start()


def start_canary(world: SupervisorHarness, version: int = 2, **settings: Any) -> dict[str, Any]:
    """Begin a canary, which has to succeed."""
    settings = settings or {"weight": 10}
    found: dict[str, Any] = world.call(
        "canary.start", {"model": "m", "version": version, **settings}
    ).result
    return found


def load(world: SupervisorHarness) -> None:
    assert world.call("load", {"model": "m", "parameters": {}}).result is None


def told_split(world: SupervisorHarness, role: str = "grpc") -> wire.TrafficSplit:
    """The last division that was told to processes of a role."""
    found: wire.TrafficSplit = world.messages_to(role, wire.TrafficSplit)[-1]
    return found


def status(world: SupervisorHarness) -> dict[str, Any]:
    found: dict[str, Any] = world.call("canary.status", {"model": "m"}).result[0]
    return found


def serving(world: SupervisorHarness) -> list[int]:
    return sorted(n for n, v in world.core.models["m"].versions.items() if v.is_serving)


def count(world: SupervisorHarness, *versions: tuple[int, int, int, float]) -> None:
    """Set what the broker has counted: version, successes, failures, mean in milliseconds."""
    world.model_stats = [
        {
            "name": "m",
            "version": str(version),
            "execution_count": 1,
            "inference_stats": {
                "success": {"count": succeeded, "ns": int(succeeded * mean_ms * 1e6)},
                "fail": {"count": failed, "ns": 0},
            },
            "zmqtriton": {
                **{
                    "pending": 0,
                    "unanswered": 0,
                    "sequences": 0,
                    "last_arrival_ns": 0,
                    "busy_ns": 0,
                },
                **{"direct_responses": 0, "brokered_responses": 0},
                "failures": {"BACKEND": failed, "CANCELED": 1000, "REJECTED": 1000},
            },
        }
        for version, succeeded, failed, mean_ms in versions
    ]
