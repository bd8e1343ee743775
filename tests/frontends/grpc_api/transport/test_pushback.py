"""The time after which clients of gRPC retry."""

from __future__ import annotations

import pytest

from zmqtriton_floor.errors import OVERLOADED, InvalidArgument, Unavailable
from zmqtriton_frontends.grpc_api.transport.lifecycle import pushback


@pytest.mark.parametrize(
    ("retry_after_ms", "told"), [(0, "1000"), (200, "1000"), (6001, "6001"), (10**7, "300000")]
)
def test_clients_wait_as_long_as_the_model_needs(retry_after_ms: int, told: str) -> None:
    expected = (("grpc-retry-pushback-ms", told),)

    assert expected == pushback(Unavailable.grpc_status, OVERLOADED, retry_after_ms)
    assert () == pushback(Unavailable.grpc_status, "not ready", retry_after_ms)
    assert () == pushback(InvalidArgument.grpc_status, OVERLOADED, retry_after_ms)
