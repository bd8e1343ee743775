"""Requests of models to ensembles: nobody has checked them before the broker."""

from __future__ import annotations

import pytest

from tests.broker.ensemble_world import EnsembleHarness, ensemble, model, step, tensor
from tests.broker.world import request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

#: The stub of the first model.
OWNER = 2
X = tensor("x", bytes(16))


@pytest.mark.parametrize(
    ("outputs", "inputs", "text"),
    [
        (["nothing"], [X], "unexpected inference output 'nothing' for model 'e'"),
        ([], [tensor("z", bytes(16))], "unexpected inference input 'z' for model 'e', allowed"),
        ([], [], "expected 1 inputs but got 0 inputs for model 'e'"),
        ([], [X, X], "input 'x' already exists in request"),
        ([], [tensor("x", bytes(16), [2, 2])], "unexpected shape for input 'x' for model 'e'"),
        ([], [tensor("x", bytes(4))], "input byte size mismatch for input 'x' for model 'e'"),
        (
            *([], [tensor("x", wire.Reference(OWNER, 2, 3, 0, 70_000))]),
            "input byte size mismatch for input 'x' for model 'e'. Expected 16, got 70000",
        ),
    ],
)
def test_what_a_model_asks_of_an_ensemble_is_checked_as_what_clients_ask(
    outputs: list[str], inputs: list[wire.Tensor], text: str
) -> None:
    world = EnsembleHarness(
        ensemble([step("m", {"I": "x"}, {"O": "y"})]), model("m"), model("asker")
    )
    asker = world.serials["asker"]
    body = wire.RequestBody("", {}, outputs, inputs)

    world.infer(asker, request(1, 0, model="e"), body=wire.encode_body(body))

    [reply] = world.finals(asker, 1)
    where = "Model e - Error when running inference: [request id: <id_unknown>] "
    assert (InvalidArgument.number, True) == (reply.code, reply.text.startswith(where + text))
    assert set() == world.busy_models()
