"""Tensors on a GPU, of models and of clients, with files in the place of its memory.

The client's library, the frontends, the stubs that open the handles: everything but the calls to
CUDA is real.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs, open_client
from tests.support.gpus.regions import Regions, client_cuda, infer
from tests.support.gpus.servers import MEMORY, gpu_server, mapped
from tests.support.scripted import string_parameter
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_THREADS = Copy("gpu_weights", "gpu_threads", string_parameter("INSTANCES", "threads"))
_MODELS: list[str | Copy] = [
    "gpu_made",
    "gpu_read",
    "gpu_asker",
    "gpu_chain",
    "gpu_weights",
    _THREADS,
]
LARGE = np.arange(100_000, dtype=np.float32)
SMALL = np.arange(10, dtype=np.float32)


@pytest.fixture(scope="module", params=MEMORY)
def memory(request: pytest.FixtureRequest) -> str:
    """Return the name of what stands for memory on a GPU."""
    return request.param


@pytest.fixture(scope="module")
def server(memory: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with gpu_server(tmp_path_factory.mktemp("cuda") / "s", memory, _MODELS, ("grpc",)) as server:
        yield server


@pytest.fixture(scope="module")
def cuda(server: Server, memory: str) -> Iterator[Any]:
    """tritonclient.utils.cuda_shared_memory."""
    with client_cuda(server, memory) as client_module:
        yield client_module


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    with open_client(server, request.param) as client:
        yield client
        client.unregister_cuda_shared_memory()


@pytest.fixture
def regions(cuda: Any, client: Any) -> Iterator[Regions]:
    regions = Regions(cuda, client)
    yield regions
    regions.close()


def _infer(client: Any, model: str, source: Any, target: Any, count: int) -> Any:
    return infer(client, model, source, target, count, _OTHERS.get(model, ()))


_OTHERS = {"gpu_read": ["ON_GPU", "OPENS"], "gpu_read_cpu": ["ON_GPU"], "gpu_chain": ["ON_GPU"]}


@pytest.mark.row("C94")
@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
def test_a_model_reads_and_writes_memory_of_a_client_where_it_lies(
    client: Any, regions: Regions, array: Any
) -> None:
    regions.create("in", array)
    regions.create("out", np.zeros_like(array))

    opens = []
    for _ in range(3):
        regions.write("in", array)
        result = _infer(client, "gpu_read", ("Y", "in"), ("Z", "out"), len(array))

        assert [1] == result.as_numpy("ON_GPU").tolist()
        assert np.array_equal(array + 1, regions.read("out", array))
        # it is no copy: the model has written into its input
        assert np.array_equal(np.full_like(array, -1), regions.read("in", array))
        opens.append(result.as_numpy("OPENS")[0])
    # each handle is opened once, for all requests
    assert opens[1:] == [opens[-1]] * 2


@pytest.mark.row("C94")
@pytest.mark.parametrize("model", ["gpu_made", "gpu_chain"])
def test_a_model_that_takes_no_gpu_tensors_gets_a_copy_and_may_give_some(
    client: Any, regions: Regions, model: str
) -> None:
    regions.create("in", LARGE)
    regions.create("out", np.zeros_like(LARGE))
    output, plus = {"gpu_made": ("Y", 1), "gpu_chain": ("Z", 2)}[model]

    _infer(client, model, ("X", "in"), (output, "out"), len(LARGE))

    assert np.array_equal(LARGE + plus, regions.read("out", LARGE))
    assert np.array_equal(LARGE, regions.read("in", LARGE))


@pytest.mark.row("C94")
def test_a_handle_that_opens_nothing_fails_the_requests_that_use_it(
    client: Any, regions: Regions
) -> None:
    regions.create("out", SMALL)
    handle = regions.allocate("small", SMALL.nbytes)
    client.register_cuda_shared_memory("none", base64.b64encode(b"x" * 64), 0, 1 << 20)
    client.register_cuda_shared_memory("less", regions.cuda.get_raw_handle(handle), 0, 1 << 30)

    for name, text in (
        ("none", "failed to open CUDA IPC handle"),
        ("less", "a CUDA shared memory region has"),
    ):
        for source, target in ((name, "out"), ("out", name)):
            with pytest.raises(InferenceServerException, match=text) as refused:
                _infer(client, "gpu_read", ("Y", source), ("Z", target), len(SMALL))
            assert refused.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert _infer(client, "gpu_read", ("Y", "out"), ("Z", "out"), len(SMALL))


def _mapped(server: Server, model: str) -> int:
    """Count how many pieces of the memory in place of a GPU's a model has open."""
    [pid] = server.stub_pids(model)
    return mapped(server.scratch, pid)


@pytest.mark.row("C94")
def test_an_unregistered_region_is_closed_when_that_is_answered(
    memory: str, server: Server, client: Any, regions: Regions
) -> None:
    if memory == "cuda":
        pytest.skip("real memory cannot be seen from here")
    before = _mapped(server, "gpu_read")
    regions.create("in", LARGE)
    regions.create("out", LARGE)
    _infer(client, "gpu_read", ("Y", "in"), ("Z", "out"), len(LARGE))
    assert before + 2 == _mapped(server, "gpu_read")

    client.unregister_cuda_shared_memory("in")
    assert before + 1 == _mapped(server, "gpu_read")
    client.unregister_cuda_shared_memory()

    assert before == _mapped(server, "gpu_read")
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
        _infer(client, "gpu_read", ("Y", "in"), ("Z", "out"), len(LARGE))


# ------------------------------------------------------------------------- of models


@pytest.fixture
def files(server: Server) -> Path:
    """Return where the memory in place of a GPU's lies."""
    if not any(server.scratch.glob("0-*")):
        pytest.skip("real memory cannot be seen from here")
    return server.scratch


@pytest.fixture
def http(server: Server) -> Iterator[Any]:
    with open_client(server, "http") as client:
        yield client


def _ask(http: Any, model: str, array: Any, **parameters: Any) -> Any:
    return http.infer(model, infer_inputs(http_client, X=array), parameters=parameters or None)


def _report(http: Any, array: Any, **parameters: Any) -> dict[str, Any]:
    [text] = _ask(http, "gpu_asker", array, **parameters).as_numpy("REPORT")
    return json.loads(text)


def _sum(array: Any, plus: int) -> float:
    return float(sum((array + plus).tolist()))


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
def test_an_output_on_a_gpu_reaches_a_client(http: Any, array: Any) -> None:
    assert np.array_equal(array + 1, _ask(http, "gpu_made", array).as_numpy("Y"))


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.row("B15")
def test_steps_of_an_ensemble_hand_it_over_where_it_lies(http: Any, array: Any) -> None:
    opens = []
    for _ in range(3):
        result = _ask(http, "gpu_chain", array)

        assert np.array_equal(array + 2, result.as_numpy("Z"))
        assert [1] == result.as_numpy("ON_GPU").tolist()
        opens += result.as_numpy("OPENS").tolist()
    # Each handle is opened once: by the first request at the latest.
    assert [opens[0]] * 3 == opens


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.row("A62", "B15")
def test_a_model_gives_on_what_it_got_on_a_gpu(http: Any, array: Any) -> None:
    report = _report(http, array, reader="gpu_read", prefer="GPU")

    assert (True, [2, 0]) == (report["made_on_gpu"], report["device"])
    assert [1] == report["on_gpu"]
    assert _sum(array, 2) == report["sum"]
    # What the other one wrote into its input it alone has seen.
    assert _sum(array, 1) == report["made"]


@pytest.mark.row("B15")
def test_a_model_that_takes_none_gets_it_on_the_cpu(http: Any) -> None:
    report = _report(http, LARGE, reader="gpu_read_cpu", prefer="GPU")

    assert (True, [0]) == (report["made_on_gpu"], report["on_gpu"])
    assert _sum(LARGE, 2) == report["sum"]


@pytest.mark.row("A62")
def test_outputs_lie_where_they_are_preferred(http: Any) -> None:
    cpu = _report(http, LARGE, reader="gpu_read", prefer="CPU", prefer_read="GPU")
    neither = _report(http, LARGE, reader="gpu_read")

    # What was made on the CPU is brought to the GPU.
    assert (False, [0], True) == (cpu["made_on_gpu"], cpu["on_gpu"], cpu["read_on_gpu"])
    assert _sum(LARGE, 2) == cpu["sum"]
    assert (False, False) == (neither["made_on_gpu"], neither["read_on_gpu"])


def test_the_memory_of_the_dead_is_let_go(server: Server, files: Path, http: Any) -> None:
    _ask(http, "gpu_chain", LARGE)
    [dead] = server.stub_pids("gpu_made")
    [reader] = server.stub_pids("gpu_read")
    before = mapped(files, reader)

    os.kill(dead, signal.SIGKILL)

    assert before > 0
    # Whoever reads it: no memory on a GPU outlives its process.
    eventually(lambda: mapped(files, reader) < before, 30.0, "handles closed")
    eventually(
        lambda: np.array_equal(LARGE + 2, _ask(http, "gpu_chain", LARGE).as_numpy("Z")),
        30.0,
        "the next one serves",
    )


@pytest.mark.parametrize("model", ["gpu_weights", "gpu_threads"])
def test_a_process_that_has_lost_its_gpu_is_replaced(server: Server, http: Any, model: str) -> None:
    [lost] = server.stub_pids(model)

    # the driver says so of all that comes after
    with pytest.raises(InferenceServerException, match="an illegal memory access"):
        http.infer(model, [], parameters={"lose": 1})

    eventually(lambda: server.stub_pids(model) not in ([], [lost]), 30, "another process")
    eventually(lambda: server.status(f"/v2/models/{model}/ready") == 200, 30, "ready")
    assert [3, 1] == http.infer(model, []).as_numpy("SEEN")[::2].tolist()
    assert "CUDA_ERROR_ILLEGAL_ADDRESS: all work" in server.log_text()
