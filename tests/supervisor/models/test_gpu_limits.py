"""`--model-load-gpu-limit`: nothing more is loaded where more of a GPU is in use than that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.supervisor.settings import settings as server_settings
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.instance import InstanceSlot

LIMIT = ((0, 0.8), (1, 0.5))
REFUSED = (
    "load failed for model 'm': version 1 is at UNAVAILABLE state: Unavailable: can not create "
    "model '{}': memory limit set for GPU {} has exceeded, model loading is rejected.;\n"
)


def _on(name: str, *devices: int, kind: str = "GPU", is_final: bool = True) -> Blueprint:
    plain = make_blueprint(name)
    places = tuple(InstanceSlot(f"{name}_0", kind, device) for device in devices)
    finished = replace(plain.finalize_config(""), slots=places)
    return replace(
        plain, final_config=finished if is_final else None, finalize_config=lambda reply: finished
    )


class Gpus:
    """GPUs with the share in use of each, and the list of those that were asked."""

    def __init__(self, *models: Blueprint, **used: float) -> None:
        self.used = {int(name[1:]): share for name, share in used.items()}
        self.queries: list[int] = []
        settings = server_settings(model_load_gpu_limit=LIMIT)
        policy = {"settings": settings, "used_share": self._ask}
        self.world = SupervisorHarness(*models, control_mode="explicit", **policy).start()

    def _ask(self, gpu: int) -> float | None:
        self.queries.append(gpu)
        return self.used.get(gpu)

    def load(self, name: str = "m") -> str:
        """Why not; "": all is well."""
        call = self.world.call("load", {"model": name, "parameters": {}})
        assert call.answer is not None
        return str(call.answer.text)


@pytest.mark.row("--model-load-gpu-limit")
def test_a_load_on_a_gpu_that_is_too_full_is_refused_until_it_is_not() -> None:
    gpus = Gpus(_on("m", 0), g0=0.81)

    assert REFUSED.format("m_0", 0) == gpus.load()
    assert [] == list(gpus.world.stub_names.values())

    gpus.used[0] = 0.8
    assert "" == gpus.load()
    assert [0, 0] == gpus.queries


def test_one_gpu_of_several_is_enough_to_refuse() -> None:
    assert REFUSED.format("m_0", 1) == Gpus(_on("m", 0, 1, 1), g0=0.1, g1=0.6).load()


def test_what_nobody_limits_and_what_runs_on_the_cpu_is_loaded() -> None:
    gpus = Gpus(_on("m", 0, kind="CPU"), _on("n", 2), g0=0.99, g1=0.99, g2=0.99)

    assert ["", ""] == [gpus.load("m"), gpus.load("n")]
    assert [] == gpus.queries


def test_where_nobody_knows_what_is_in_use_it_is_loaded() -> None:
    assert "" == Gpus(_on("m", 0)).load()


def test_instances_that_a_model_names_itself_are_asked_about_too() -> None:
    gpus = Gpus(_on("m", 0, is_final=False), g0=0.9)

    assert REFUSED.format("m_0", 0) == gpus.load()


def test_an_instance_that_is_started_again_is_not_asked_about() -> None:
    gpus = Gpus(_on("m", 0), g0=0.1)
    assert "" == gpus.load()
    gpus.used[0] = 0.99

    [serial] = gpus.world.stub_names
    gpus.world.kill_process(serial)

    assert [0] == gpus.queries
