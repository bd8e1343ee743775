"""Streams of a server that stops."""

from __future__ import annotations

import pytest

from tests.frontends.grpc_api.inference.test_stream_infer import (
    Conversation,
    converse,
    request,
    text,
)
from tests.support.streams import item
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.grpc_api.inference import outbox


@pytest.mark.parametrize("quiet_s", [0.0, 600.0])
def test_a_stream_ends_when_all_is_answered_and_its_client_is_quiet(
    quiet_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "QUIET_S", quiet_s)

    async def test(conversation: Conversation) -> None:
        streams = conversation.gateway.fake_streams
        streams.put("a", item(b"x"))
        conversation.send(request("d", "a"))
        await conversation.get()

        conversation.streaming.drain()
        streams.put("b", item(b"z", is_final=True))
        conversation.send(request("d", "b"))
        assert text(await conversation.get()) == b"z"
        streams.put("a", item(b"y", is_final=True))

        assert text(await conversation.get()) == b"y"
        if quiet_s:
            conversation.half_close()
            assert [] == await conversation.rest()
        else:
            with pytest.raises(Unavailable, match="GRPC server is shutting down"):
                await conversation.get()

    converse(test)
