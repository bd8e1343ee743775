"""The scope of a timeout: nothing, each response, or the whole stream."""

from __future__ import annotations

import itertools

import pytest

from zmqtriton_extras.pytriton.client import DecoupledModelClient
from zmqtriton_extras.pytriton.client.client import AsyncioDecoupledModelClient
from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton_extras.pytriton.client.wire.calls import StreamTimeout, TimeoutScope


@pytest.mark.parametrize(("scope", "waits"), [("none", [None] * 9), ("response", [3.0] * 9)])
def test_a_wait_that_does_not_depend_on_the_ones_before(
    scope: TimeoutScope, waits: list[float | None]
) -> None:
    left_s = StreamTimeout(3.0, scope).begin(itertools.count().__next__)

    assert waits == [left_s() for _ in range(9)]


def test_the_whole_stream_ends_in_time_also_for_responses_that_are_there() -> None:
    left_s = StreamTimeout(3.0, "stream").begin(itertools.count().__next__)

    assert [2.0, 1.0] == [left_s(), left_s()]
    with pytest.raises(TimeoutError, match="the stream did not end within 3 s"):
        left_s()


def test_a_client_made_of_another_keeps_the_scope() -> None:
    with (
        DecoupledModelClient("grpc://localhost:9", "m", timeout_scope="stream") as first,
        DecoupledModelClient.from_existing_client(first) as second,
    ):
        assert "stream" == second._timeout_scope
    with DecoupledModelClient("grpc://localhost:9", "m") as plain:
        assert "none" == plain._timeout_scope
    assert "response" == AsyncioDecoupledModelClient("grpc://localhost:9", "m")._timeout_scope
    with pytest.raises(PyTritonClientValueError, match="timeout_scope must be one of none, resp"):
        DecoupledModelClient("grpc://localhost:9", "m", timeout_scope="all")  # type: ignore[arg-type]
