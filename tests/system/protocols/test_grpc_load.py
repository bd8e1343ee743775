"""Many streams and cancelled calls over gRPC, in small; `make faults` has them in full."""

from __future__ import annotations

import pytest

from tests.faults import grpc_load
from tests.support.server import Server

STREAMS, RESPONSES, CANCELS, READERS = 100, 50, 500, 20


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=grpc_load.MODELS),
]


@pytest.mark.row("D48")
def test_every_one_of_many_streams_is_complete_and_ends_once(server: Server) -> None:
    grpc_load.run_streams(server, STREAMS, RESPONSES)


@pytest.mark.long("system/protocols/test_streams.py::test_a_cancelled_stream_reaches_the_model")
@pytest.mark.row("D36")
def test_nothing_stays_of_calls_that_are_cancelled_at_any_instant(server: Server) -> None:
    ends = grpc_load.cancel_many(server, CANCELS)

    assert ends["cancelled"] > CANCELS // 10
    assert ends["answered"] > 0


@pytest.mark.row("D37")
def test_a_reader_that_stops_does_not_stop_the_others(server: Server) -> None:
    grpc_load.run_streams_beside_stalled(server, READERS, RESPONSES)
