"""Large tensors that models pass on: not copied, and nobody's to write to while they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.process_memory import segments
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

ONES = np.ones(150_000, np.float32)
_LONG_S = 60.0


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.as_nobody,
    pytest.mark.server(
        models=["passer", "held", "identity_fp32", Copy("passer", "another_passer")], kills=True
    ),
]


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        yield client


def _infer(client: Any, array: Any, model: str = "passer", **parameters: str) -> Any:
    [entry] = infer_inputs(grpc_client, INPUT0=array)
    result = client.infer(model, [entry], parameters=parameters or None, client_timeout=_LONG_S)
    return result.as_numpy("OUTPUT0")


def _overwrite(client: Any) -> None:
    """Uses the memory of the gRPC process, whatever of it is free."""
    for _ in range(8):
        assert not _infer(client, np.zeros_like(ONES), "identity_fp32").any()


def _owns_memory(pid: int) -> bool:
    return any(size >= ONES.nbytes and rights == "rw-s" for size, rights in segments(pid))


def _read(path: Path) -> float:
    """Return what the reader sees once it may read."""
    path.with_suffix(".go").touch()
    sum_path = path.with_suffix(".sum")
    eventually(sum_path.exists, _LONG_S, "a sum")
    return float(sum_path.read_text())


def test_what_a_model_passes_on_is_not_copied(server: Server, client: Any) -> None:
    array, model = np.arange(150_000, dtype=np.float32), "another_passer"

    for _ in range(2):
        assert np.array_equal(array, _infer(client, array, model, way="back"))
    [passer], [identity] = server.stub_pids(model), server.stub_pids("identity_fp32")
    assert not _owns_memory(passer)

    for _ in range(4):
        assert np.array_equal(array, _infer(client, array, model, way="kept"))
    assert np.array_equal(array, _infer(client, array, model, way="through"))
    for _ in range(8):
        assert np.array_equal(2 * array, _infer(client, array, model, way="made"))
    assert not _owns_memory(identity)


def test_what_a_model_has_written_is_what_the_other_one_gets(client: Any) -> None:
    expected = ONES.copy()
    expected[-1] = 5

    assert np.array_equal(expected, _infer(client, ONES, way="written"))


def test_a_dead_asker_s_question_keeps_the_tensor(
    server: Server, client: Any, tmp_path: Path
) -> None:
    path = tmp_path / "awaited"
    errors: list[InferenceServerException] = []
    thread = threading.Thread(target=_fail, args=(server, path, errors))
    thread.start()
    eventually(path.with_suffix(".begun").exists, _LONG_S, "the reader has begun")

    server.kill_only("stub", "passer")
    thread.join()
    _overwrite(client)

    assert "is not healthy" in str(errors[0])
    assert float(ONES.sum()) == _read(path)
    eventually(lambda: server.stub_pids("passer"), _LONG_S, "a new stub")


def _fail(server: Server, path: Path, errors: list[InferenceServerException]) -> None:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        eventually(lambda: client.is_model_ready("passer"), _LONG_S, "the passer")
        with pytest.raises(InferenceServerException) as caught:
            _infer(client, ONES, way="awaited", path=str(path))
        errors.append(caught.value)
