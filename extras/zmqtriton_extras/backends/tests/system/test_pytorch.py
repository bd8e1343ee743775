"""Models of PyTorch on a real server; `make test KIND=frameworks` has it installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from tests.support.server import Server
from zmqtriton.main import main
from zmqtriton_extras.backends.tests.system import torch_models
from zmqtriton_extras.backends.tests.system.serving import DESPITE_FAILURES

pytest.importorskip("torch")


pytestmark = [
    pytest.mark.system,
    pytest.mark.frameworks,
    pytest.mark.server(
        options=(
            *DESPITE_FAILURES,
            "--backend-config=pytorch,INTRA_OP_THREAD_COUNT=1",
        ),
        frontends=(),
    ),
]
#: Its samples of two columns are more than the model can multiply.
COLD = """backend: "pytorch" max_batch_size: 8
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] } ]
model_warmup { name: "w" batch_size: 2
  inputs { key: "INPUT__0" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } }
"""


def prepare(server: Server) -> None:
    root = server.repository
    torch_models.write_script(root / "cold" / "1" / "model.pt", "Raising")
    (root / "cold" / "config.pbtxt").write_text(COLD)
    torch_models.write_program(root / "bare" / "1" / "model.pt2")
    torch_models.write_script(root / "unconfigured" / "1" / "model.pt", "Doubled")


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://"), concurrency=4) as client:
        yield client


def input_of(name: str, array: Any) -> Any:
    tensor = triton.InferInput(name, list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


@pytest.mark.row("K02")
def test_an_exported_program_needs_no_configuration(client: Any) -> None:
    ones = np.ones((1, 2), dtype=np.float32)

    answer = client.infer("bare", [input_of("x", 3 * ones), input_of("y", ones)])

    assert answer.as_numpy("OUTPUT__0").tolist() == [[2, 2]]
    assert client.get_model_config("bare")["max_batch_size"] == 4


def test_the_example_names_colours(tmp_path: Path) -> None:
    main(["example", "torch", str(tmp_path)])
    python = [sys.executable, "-B", "-W", "ignore"]
    subprocess.run([*python, str(tmp_path / "make.py")], check=True, capture_output=True)

    client = [*python, str(tmp_path / "client.py"), "--serve", "fe0201"]
    finished = subprocess.run(client, check=True, capture_output=True, text=True)

    assert finished.stdout == "fe0201: red\n"


def test_torchscript_needs_one(client: Any) -> None:
    (entry,) = [m for m in client.get_model_repository_index() if m["name"] == "unconfigured"]

    assert "must specify 'input' and 'output' in config.pbtxt" in entry["reason"]


@pytest.mark.row("K01")
def test_what_a_sample_raises_is_the_reason(client: Any) -> None:
    (entry,) = [m for m in client.get_model_repository_index() if m["name"] == "cold"]

    assert "failed to run warmup sample 'w': " in entry["reason"]
    assert "mat1 and mat2 shapes cannot be multiplied" in entry["reason"]
