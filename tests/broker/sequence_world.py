"""A model with sequences in an imagined world, and who sends requests of them."""

from __future__ import annotations

from typing import Any

from tests.broker.world import BrokerHarness, request
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton_floor import wire

F, S, S2 = 1, 2, 3
IDLE_NS = 5_000_000_000
INT32 = 8
BODY = wire.encode_body(
    wire.RequestBody("r", {}, ["O"], [wire.Tensor("I", INT32, [1, 2], b"\1\0\0\0\2\0\0\0")])
)
CONTROLS = [
    {"name": "S", "control": [{"int32_false_true": [0, 1]}]},
    {"name": "R", "control": [{"kind": "CONTROL_SEQUENCE_READY", "fp32_false_true": [0.0, 1.0]}]},
    {"name": "E", "control": [{"kind": "CONTROL_SEQUENCE_END", "bool_false_true": [False, True]}]},
    {"name": "C", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}]},
]


def sequence_config(slots: int = 1, **batching: Any) -> dict[str, Any]:
    idle = {"max_sequence_idle_microseconds": str(IDLE_NS // 1000)}
    return {
        "name": "m",
        "max_batch_size": slots,
        "input": [{"name": "I", "data_type": "TYPE_INT32", "dims": [2]}],
        "sequence_batching": {"direct": {}, "control_input": CONTROLS, **idle, **batching},
    }


class SequenceHarness(BrokerHarness):
    """One model, one frontend and some stubs."""

    def __init__(self, config: dict[str, Any], *stubs: int, epoch: int = 1) -> None:
        super().__init__()
        self.core.configure(epoch)
        self.add_generation(config=config)
        self.add_frontend(F)
        for serial in stubs or (S,):
            self.add_stub(serial)
        self.ids = iter(range(1, 1_000_000))

    def send(self, sequence: int | str, flags: int = 0, **fields: Any) -> int:
        own_id = next(self.ids)
        row = request(own_id, correlation=sequence, flags=flags)._replace(**fields)
        self.infer(F, row, body=BODY)
        return own_id

    def executing_ids(self, serial: int = S) -> list[int]:
        """The requests that a stub has, 0 for those that fill empty slots."""
        return [
            work.id if work.id < FIRST_PADDING_ID else 0
            for work in self.batched_requests.get(serial, [])
        ]

    def error(self, own_id: int) -> tuple[int, str]:
        [final] = self.finals(F, own_id)
        return final.code, final.text


def must_start(sequence: int | str) -> str:
    return (
        f"inference request for sequence {sequence} to model 'm' must specify the START flag on "
        "the first request of the sequence"
    )


def stateful(**batching: Any) -> dict[str, Any]:
    return sequence_config(slots=2, state=[{"input_name": "I", "output_name": "O"}], **batching)
