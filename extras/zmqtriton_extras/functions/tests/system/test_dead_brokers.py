"""Streams of large pieces, of each kind of model, while brokers die."""

from __future__ import annotations

import pytest

from zmqtriton_extras.functions.tests.kills import SIZES, read_under_kills, serving

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "broker/streams/test_lost_pieces.py::test_in_orders_by_chance_each_stream_ends",
        "extras/functions/test_streams.py::test_each_stream_ends_once_in_all_orders",
    ),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
def test_each_stream_ends_in_time_and_the_next_one_is_served(size: int) -> None:
    with serving() as server:
        endings, wrong = read_under_kills(server, sizes=[size], kills=6)

    assert [] == wrong
    assert any(not each.error for each in endings)
