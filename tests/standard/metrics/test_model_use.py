"""The processor time and the memory of models: a counter that does not fall with its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.standard.metrics.test_processes import PAGE_BYTES, write
from zmqtriton_standard.metrics.processes import ModelUse, Processes


def stub(pid: int, model: str = "m") -> dict[str, Any]:
    return {"role": "stub", "pid": pid, "model": model, "version": 1}


def test_the_use_of_a_model_is_that_of_its_processes(tmp_path: Path) -> None:
    use = ModelUse(Processes(tmp_path))
    for pid, cpu_s in ((7, 1.0), (8, 2.0), (9, 4.0)):
        write(tmp_path, pid, cpu_s=cpu_s)

    rows = [{"role": "broker", "pid": 9}, stub(7), stub(8), stub(9, "n"), stub(0, "starts")]
    by_model = use.look(rows)

    assert {("m", "1"): (3.0, 20 * PAGE_BYTES), ("n", "1"): (4.0, 10 * PAGE_BYTES)} == by_model


def test_a_process_counts_once_whose_threads_are_instances(tmp_path: Path) -> None:
    write(tmp_path, 7, cpu_s=1.5)

    by_model = ModelUse(Processes(tmp_path)).look([stub(7), stub(7), stub(7)])

    assert {("m", "1"): (1.5, 10 * PAGE_BYTES)} == by_model


def test_what_a_process_has_used_counts_after_its_end(tmp_path: Path) -> None:
    use = ModelUse(Processes(tmp_path))
    write(tmp_path, 7, cpu_s=5.0)
    use.look([stub(7)])

    write(tmp_path, 8, cpu_s=0.5, started=300)
    assert {("m", "1"): (5.5, 10 * PAGE_BYTES)} == use.look([stub(8)])


def test_a_model_that_is_loaded_anew_begins_anew(tmp_path: Path) -> None:
    use = ModelUse(Processes(tmp_path))
    write(tmp_path, 7, cpu_s=5.0)
    use.look([stub(7)])
    use.look([])
    write(tmp_path, 8, cpu_s=0.5, started=300)

    assert 0.5 == use.look([stub(8)])["m", "1"].cpu_s
