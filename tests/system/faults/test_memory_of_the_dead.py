"""A model keeps a tensor of another one, which dies, and passes the tensor on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import scripted
from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

FRONTENDS = ()
MODELS = ("keeper", "identity_fp32")
#: Passes it on before this process can see that its owner is dead.
PASS_ON = """
    import os, time
    made = pb_utils.InferenceRequest(
        model_name="keeper",
        requested_output_names=["OUTPUT0"],
        inputs=[
            pb_utils.Tensor("INPUT0", np.zeros(100_000, np.float32)),
            pb_utils.Tensor("MS", np.array([0], np.int32)),
        ],
    ).exec()
    kept, path = made.output_tensors()[0].as_numpy(), text_of(request)
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    passed_on = pb_utils.InferenceRequest(
        model_name="identity_fp32",
        requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.Tensor("INPUT0", kept)],
    )
    return [reply(answer_of(passed_on.exec()))]
"""


def prepare(server: Server) -> None:
    scripted.add_model(server, "scripted", "keeping")


def test_a_model_that_keeps_memory_of_the_dead_is_accused_of_nothing(
    server: Server, tmp_path: Path
) -> None:
    inputs = [tensor("INPUT0", "FP32", [1.0]), tensor("MS", "INT32", [0])]
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(scripted.generate, server, "keeping", PASS_ON, str(gate))
        eventually(Path(f"{gate}.begun").exists, 60, "the tensor")

        server.replace_only("stub", "keeper")
        eventually(lambda: server.infer_json("keeper", *inputs)[0] == 200, 60, "the next keeper")
        gate.touch()

        gone = "UNAVAILABLE: the memory of a tensor is gone with the process that owned it"
        assert gone == answer.result(60)
    assert "it has no access to" not in server.log_text()
