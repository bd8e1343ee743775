"""Which processes become clients of MPS, and with which share; no process is involved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.diagnosis.explaining.test_findings import READY
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton.options.values import BadValue
from zmqtriton_extras.mps import daemon, findings, settings
from zmqtriton_extras.mps.settings import GpuShare

_STARTED = daemon.Started(None)


def serve(
    *devices: int, share: GpuShare | None = None, answer: Any = _STARTED, **policy: Any
) -> SupervisorHarness:
    """Serve a model with an instance on each of these GPUs."""
    first = make_blueprint("m").first_slot._replace(kind="GPU")
    slots = [first._replace(name=f"m_0_{i}", device=gpu) for i, gpu in enumerate(devices)]
    final = replace(make_blueprint("m").finalize_config(""), slots=tuple(slots))
    blueprint = replace(
        make_blueprint("m"), final_config=final, add_on_settings={"mps": share} if share else {}
    )
    world = SupervisorHarness(blueprint, **{"mps": "auto", **policy})
    pids = [102, 103, 104, 105, 106, 107, 108, 109]
    world.answer_in_background = lambda call: answer if call.func is daemon.start else (*pids,)
    return world.start()


def variables(world: SupervisorHarness) -> list[dict[str, str]]:
    return [{**world.variables[one.serial]} for one in world.generation("m").instances]


def test_processes_that_share_a_gpu_are_clients() -> None:
    world = serve(0, 0, 1)

    first, second, alone = variables(world)
    assert first == second
    assert {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"} == first.keys()
    assert [{}] * 3 == [alone, *variables(serve(0, 0, mps="off"))]
    rows = world.call("status").result["mps"]
    assert [0, 0] == [row["gpu"] for row in rows]
    [noted] = findings.notes(Facts("m", index=[READY], status={"mps": rows}), None)
    assert ("its 2 instances share their GPUs by MPS", True) == (noted.text, rows[0]["is_client"])


def test_a_share_limits_threads_and_memory() -> None:
    [own] = variables(serve(1, share=GpuShare(30, "8G")))

    assert "30" == own["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    assert "1=8G" == own["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]


def test_a_daemon_that_does_not_start_is_explained() -> None:
    world = serve(0, 0, answer=daemon.Started(None, "it is not installed"))
    rows = [{**row, "is_client": False} for row in world.call("status").result["mps"]]
    [warned] = findings.notes(Facts("m", index=[READY], status={"mps": rows}), None)

    assert world.has_logged("E it is not installed; processes take turns on GPUs instead")
    assert "MPS has no client of m_0_0, m_0_1: it is not installed" == warned.text


@pytest.mark.parametrize(
    ("text", "share"),
    [("30%", GpuShare(30)), ("100% 512M", GpuShare(100, "512M")), ("0%", None), ("30", None)],
)
def test_values_of_the_parameter(text: str, share: GpuShare | None) -> None:
    config = parse_text(f'parameters {{ key: "GPU_SHARE" value {{ string_value: "{text}" }} }}')

    assert share == settings.read(config)
    texts = [problem.text for problem in settings.problems(config)]
    assert (share is None) is any("it must be a percentage" in each for each in texts)


def test_an_option_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadValue, match="for --mps\nAny of: auto, off"):
        settings.read_option("on")
