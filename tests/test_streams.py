from __future__ import annotations

import asyncio
from pathlib import Path

import zmq

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.wire import FINAL, ResponseBody
from zmqtriton_frontends.streams import ResponseStream, Streams

BODY = wire.encode_body(ResponseBody({}, []))
OWN, STUB = 5, 7


def outcome(number: int) -> wire.Outcome:
    return wire.Outcome(OWN, 1, 0, "", 0, number)


def test_what_comes_straight_after_the_final_response_is_not_lost(tmp_path: Path) -> None:
    async def check(context: zmq.Context[zmq.Socket[bytes]]) -> None:
        publisher = endpoints.open_publisher(context, endpoints.stream_address(str(tmp_path), STUB))
        replies: dict[int, object] = {}
        streams = Streams(replies, lambda grant: None)
        loop = asyncio.get_running_loop()
        streams.be_born(loop, OWN, str(tmp_path))
        stream = replies[1] = ResponseStream(loop, 1)
        streams.take_reply(stream, wire.Reply(1, 0, "", 0, 0, STUB), BODY)
        while not endpoints.has_input(publisher):
            await asyncio.sleep(0.001)
        endpoints.receive(publisher)

        # As in the gateway: with the final response nothing is asked any more.
        del replies[1]
        streams.take_reply(stream, wire.Reply(1, 0, "", FINAL, 2, STUB), b"")
        header = wire.encode(wire.Results([outcome(1)], []))
        endpoints.send(publisher, [endpoints.topic(OWN), header, BODY])

        got = []
        while not (got and got[-1].is_final):
            await asyncio.wait_for(stream.wait(), 5)
            got.append(stream.pop())
        assert [(item.error, item.is_final) for item in got] == [
            (None, False),
            (None, False),
            (None, True),
        ]
        streams.left(stream)
        streams.close()
        publisher.close()

    with zmq.Context() as context:
        asyncio.run(check(context))
