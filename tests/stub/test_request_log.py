"""The life of requests in a verbose log, in Triton's words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stub.fakes import FakeLink, fp32
from zmqtriton_floor.logs import LogOptions
from zmqtriton_stub import instance, request_log


class Request:
    def __init__(self, own_id: str) -> None:
        self._id = own_id

    def request_id(self) -> str:
        return self._id


def logged(link: FakeLink) -> list[str]:
    return [said.text for said in link.sent_to_supervisor]


@pytest.fixture(autouse=True)
def _verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "log_options", LogOptions(verbose=1))


def test_a_batch_is_logged_when_it_begins_and_when_it_is_released() -> None:
    link = FakeLink()
    batch: Any = [Request("a"), Request("")]

    ids = request_log.begun(link.instance, batch)
    request_log.released(link.instance, ids)

    state = "Setting state from"
    assert [
        f"[request id: a] {state} PENDING to EXECUTING",
        f"[request id: <id_unknown>] {state} PENDING to EXECUTING",
        "model m, instance m_0_0, executing 2 requests",
        f"[request id: a] {state} EXECUTING to RELEASED",
        f"[request id: <id_unknown>] {state} EXECUTING to RELEASED",
        "TRITONBACKEND_ModelInstanceExecute: model instance name m_0_0 released 2 requests",
    ] == logged(link)
    assert {"V"} == {said.level for said in link.sent_to_supervisor}


def test_a_batch_of_which_nothing_is_left_is_not_logged() -> None:
    link = FakeLink()

    assert () == request_log.begun(link.instance, [])

    assert [] == logged(link)


def test_each_output_is_logged_with_its_type_and_shape() -> None:
    link = FakeLink()

    request_log.answered(link.instance, [fp32("A"), fp32("B")._replace(shape=[2, 3])])

    text = "add response output: output:"
    assert [f"{text} A, type: FP32, shape: [1]", f"{text} B, type: FP32, shape: [2,3]"] == (
        logged(link)
    )
