"""Ensembles and their models in an imagined world, with one stub for each model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.broker.world import BrokerHarness, outcome, request
from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton_floor import wire

F = 1
FP32 = 11


def _tensors(names: Sequence[str], dims: list[int]) -> list[dict[str, Any]]:
    return [{"name": name, "data_type": "TYPE_FP32", "dims": dims} for name in names]


def model(
    name: str, inputs: str = "I", outputs: str = "O", dims: list[int] | None = None, **more: Any
) -> dict[str, Any]:
    """A configuration whose tensors have names of one letter."""
    dims = dims or [4]
    tensors = {"input": _tensors(inputs, dims), "output": _tensors(outputs, dims)}
    return {"name": name, "max_batch_size": 0, **tensors, **more}


def step(
    name: str, inputs: dict[str, str], outputs: dict[str, str], version: int = -1
) -> dict[str, Any]:
    maps = {"input_map": inputs, "output_map": outputs}
    return {"model_name": name, "model_version": version, **maps}


def ensemble(
    steps: list[dict[str, Any]],
    name: str = "e",
    inputs: str = "x",
    outputs: str = "y",
    **more: Any,
) -> dict[str, Any]:
    return model(name, inputs, outputs, ensemble_scheduling={"step": steps}, **more)


def tensor(name: str, data: Any = b"", shape: list[int] | None = None) -> wire.Tensor:
    return wire.Tensor(name, FP32, shape or [4], data)


class EnsembleHarness(BrokerHarness):
    """All models are served, those that are no ensembles by a stub each, of which one asks."""

    def __init__(self, *configs: dict[str, Any]) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}
        self.serials: dict[str, int] = {}
        #: What stubs say of the beginning of their executions.
        self.begun_ns = 0
        self.add_frontend(F)
        for number, config in enumerate(configs, start=1):
            name = config["name"]
            self.numbers[name] = number
            self.core.add_generation(wire.AddGeneration(number, name, 1, json.dumps(config)))
            if "ensemble_scheduling" not in config:
                self.serials[name] = serial = F + 1 + len(self.serials)
                self.add_stub(serial, number)

    def infer_ensemble(
        self, own_id: int, body: wire.RequestBody | None = None, **fields: Any
    ) -> EnsembleHarness:
        """Of the ensemble e."""
        body = body or wire.RequestBody("", {}, [], [tensor("x")])
        row = request(own_id, self.numbers["e"], **fields)
        self.core.infer(F, [row], [wire.encode_body(body)], self.now)
        self.drain_outbox()
        return self

    def busy_models(self) -> set[str]:
        """The models whose stubs have something to execute."""
        return {name for name, serial in self.serials.items() if self.batched_requests.get(serial)}

    def executing_request(self, name: str) -> wire.RequestBody:
        """Return what the stub of this model executes."""
        [work] = self.batched_requests[self.serials[name]]
        return wire.decode_request(self.bodies[work.peer, work.id])

    def respond(
        self,
        name: str,
        *tensors: wire.Tensor,
        parameters: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Answer as the stub of this model.

        An empty answer has no body only if it is final and the model is decoupled.
        """
        body = wire.encode_body(wire.ResponseBody(parameters or {}, list(tensors)))
        is_end = not tensors and "number" in fields
        self.respond_with_body(name, b"" if is_end else body, **fields)

    def respond_with_body(self, name: str, body: bytes, **fields: Any) -> None:
        serial = self.serials[name]
        work = self.batched_requests[serial][0]
        said = outcome(work.id, peer=work.peer, **fields)
        executed = []
        if said.flags & wire.FINAL:
            self.batched_requests[serial].remove(work)
            executed = [wire.Executed(work.batch, 1, 2, 3, self.begun_ns)]
        self.send_results(serial, said, executed=executed, body=body)

    def respond_error(self, name: str, text: str) -> None:
        self.respond_with_body(name, b"", code=2, text=text)

    def response(self, own_id: int) -> wire.ResponseBody:
        [body] = self.responses(own_id)
        return body

    def responses(self, own_id: int) -> list[wire.ResponseBody]:
        """Return what F was answered."""
        bodies = self.reply_bodies.get((F, own_id), [])
        return [wire.decode_response(body) for body in bodies if body]

    def error_texts(self, own_id: int) -> list[str]:
        return [reply.text for reply in self.finals(F, own_id) if reply.code]

    def counters(self, name: str) -> ModelStatistics:
        return self.core.generations.by_number[self.numbers[name]].statistics
