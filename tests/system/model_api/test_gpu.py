"""Tensors on a GPU between real processes, with files in place of the GPU's memory.

Everything but the calls to CUDA is real: arenas, handles, leases, deaths.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support.gpus.servers import MEMORY, gpu_server, mapped
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_MODELS = ["gpu_made", "gpu_read", "gpu_asker", "gpu_chain"]
LARGE = np.arange(100_000, dtype=np.float32)
SMALL = np.arange(10, dtype=np.float32)


@pytest.fixture(scope="module", params=MEMORY)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with gpu_server(tmp_path_factory.mktemp("gpu") / "s", request.param, _MODELS) as server:
        yield server


@pytest.fixture
def files(server: Server) -> Path:
    """Return where the memory in place of a GPU's lies."""
    if not any(server.scratch.glob("0-*")):
        pytest.skip("real memory cannot be seen from here")
    return server.scratch


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with http_client.InferenceServerClient(server.url[7:], network_timeout=60.0) as client:
        yield client


def _infer(client: Any, model: str, array: Any, name: str = "X", **parameters: Any) -> Any:
    entry = http_client.InferInput(name, list(array.shape), "FP32")
    entry.set_data_from_numpy(array)
    return client.infer(model, [entry], parameters=parameters or None)


def _report(client: Any, array: Any, **parameters: Any) -> dict[str, Any]:
    [text] = _infer(client, "gpu_asker", array, **parameters).as_numpy("REPORT")
    report: dict[str, Any] = json.loads(text)
    return report


def _sum(array: Any, plus: int) -> float:
    return float(sum((array + plus).tolist()))


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
def test_an_output_on_a_gpu_reaches_a_client(client: Any, array: Any) -> None:
    assert np.array_equal(array + 1, _infer(client, "gpu_made", array).as_numpy("Y"))


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.row("B15")
def test_steps_of_an_ensemble_hand_it_over_where_it_lies(client: Any, array: Any) -> None:
    opens = []
    for _ in range(3):
        result = _infer(client, "gpu_chain", array)

        assert np.array_equal(array + 2, result.as_numpy("Z"))
        assert [1] == result.as_numpy("ON_GPU").tolist()
        opens += result.as_numpy("OPENS").tolist()
    # Each handle is opened once: by the first request at the latest.
    assert [opens[0]] * 3 == opens


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.row("A62", "B15")
def test_a_model_gives_on_what_it_got_on_a_gpu(client: Any, array: Any) -> None:
    report = _report(client, array, reader="gpu_read", prefer="GPU")

    assert (True, [2, 0]) == (report["made_on_gpu"], report["device"])
    assert [1] == report["on_gpu"]
    assert _sum(array, 2) == report["sum"]
    # What the other one wrote into its input it alone has seen.
    assert _sum(array, 1) == report["made"]


@pytest.mark.row("B15")
def test_a_model_that_takes_none_gets_it_on_the_cpu(client: Any) -> None:
    report = _report(client, LARGE, reader="gpu_read_cpu", prefer="GPU")

    assert (True, [0]) == (report["made_on_gpu"], report["on_gpu"])
    assert _sum(LARGE, 2) == report["sum"]


@pytest.mark.row("A62")
def test_outputs_lie_where_they_are_preferred(client: Any) -> None:
    cpu = _report(client, LARGE, reader="gpu_read", prefer="CPU", prefer_read="GPU")
    neither = _report(client, LARGE, reader="gpu_read")

    # What was made on the CPU is brought to the GPU.
    assert (False, [0], True) == (cpu["made_on_gpu"], cpu["on_gpu"], cpu["read_on_gpu"])
    assert _sum(LARGE, 2) == cpu["sum"]
    assert (False, False) == (neither["made_on_gpu"], neither["read_on_gpu"])


def test_what_a_model_keeps_stays_while_others_come_and_go(client: Any) -> None:
    _report(client, LARGE + 5, reader="gpu_read", prefer="GPU", keep=True)
    for _ in range(3):
        _report(client, LARGE, reader="gpu_read", prefer="GPU")

    kept = _report(client, LARGE, reader="gpu_read", prefer="GPU")["kept"]

    assert [pytest.approx(_sum(LARGE, 6), rel=1e-4)] == kept


def _count(files: Path) -> int:
    return len(list(files.glob("0-*")))


def test_memory_is_used_again(files: Path, client: Any) -> None:
    def ask() -> None:
        _report(client, LARGE, reader="gpu_read", prefer="GPU")
        _infer(client, "gpu_chain", LARGE)

    ask()
    before = _count(files)
    for _ in range(20):
        ask()

    assert before == _count(files)


def test_the_memory_of_the_dead_is_let_go(server: Server, files: Path, client: Any) -> None:
    _infer(client, "gpu_chain", LARGE)
    [dead] = server.stub_pids("gpu_made")
    [reader] = server.stub_pids("gpu_read")
    before = mapped(files, reader)

    os.kill(dead, signal.SIGKILL)

    assert before > 0
    # Whoever reads it: no memory on a GPU outlives its process.
    eventually(lambda: mapped(files, reader) < before, 30.0, "handles closed")
    eventually(
        lambda: np.array_equal(LARGE + 2, _infer(client, "gpu_chain", LARGE).as_numpy("Z")),
        30.0,
        "the next one serves",
    )
