"""Logs the life of each request as verbose lines, in Triton's words.

Called only while the log is verbose.
"""

from __future__ import annotations

from typing import List, Sequence

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_NUMBER
from zmqtriton_stub.api.inference import InferenceRequest
from zmqtriton_stub.instance import StubInstance


def begun(instance: StubInstance, requests: Sequence[InferenceRequest]) -> Sequence[str]:
    """Log the begin of an execution of requests; return their ids for `released`."""
    if not requests:
        return ()
    ids: List[str] = [request.request_id() for request in requests]
    for own_id in ids:
        _say(instance, f"{_whose(own_id)}PENDING to EXECUTING")
    _say(
        instance, f"model {instance.model}, instance {instance.name}, executing {len(ids)} requests"
    )
    return ids


def answered(instance: StubInstance, outputs: Sequence[wire.Tensor]) -> None:
    """Log the outputs of a response that is sent."""
    for name, number, dims, _ in outputs:
        datatype = BY_NUMBER[number].name
        shape = "[" + ",".join(map(str, dims)) + "]"
        _say(instance, f"add response output: output: {name}, type: {datatype}, shape: {shape}")


def released(instance: StubInstance, ids: Sequence[str]) -> None:
    """Log the release of requests, by their ids, when the instance is free."""
    for own_id in ids:
        _say(instance, f"{_whose(own_id)}EXECUTING to RELEASED")
    head = f"TRITONBACKEND_ModelInstanceExecute: model instance name {instance.name}"
    _say(instance, f"{head} released {len(ids)} requests")


def _whose(own_id: str) -> str:
    return f"[request id: {own_id or '<id_unknown>'}] Setting state from "


def _say(instance: StubInstance, text: str) -> None:
    instance.log("V", text, 3)
