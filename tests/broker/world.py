"""A broker's core with imagined peers, driven by hand: no sockets, no clock but `now`."""

from __future__ import annotations

import json
from typing import Any

from zmqtriton.broker.core import Core
from zmqtriton_floor import wire

TOKEN = b"t" * 16


def request(own_id: int, generation: int = 1, **fields: Any) -> wire.Request:
    """A plain request, but for the fields given."""
    row = wire.Request(own_id, generation, "", -1, 0, 0, 0, 0, 1, 0, 0)
    return row._replace(**fields)


class Page:
    """What a stub has begun, written by the test."""

    begun = 0


class World:
    """What the supervisor, frontends and stubs would say, and what they were told."""

    def __init__(self) -> None:
        self.core = Core()
        self.now = 1_000
        #: Every reply that went out: (peer, id) -> replies in order.
        self.replies: dict[tuple[int, int], list[wire.Reply]] = {}
        self.works: dict[int, list[wire.BatchedRequest]] = {}
        self.abandoned: list[tuple[int, wire.RequestKey]] = []
        self.told: list[Any] = []
        #: Of the works and of the replies, by route.
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.reply_bodies: dict[tuple[int, int], list[bytes]] = {}
        #: What owners of memory were told, and how far the readers of streams have come.
        self.released: dict[int, list[wire.Block]] = {}
        self.granted: dict[int, list[int]] = {}
        self.lent: dict[int, list[wire.Block]] = {}
        self.settled: list[int] = []

    def serve(self, generation: int = 1, version: int = 1, config: dict | None = None) -> None:
        document = json.dumps(config or {"name": "m"})
        self.core.serve(wire.AddGeneration(generation, "m", version, document))

    def frontend(self, serial: int) -> None:
        self.core.expect(wire.ExpectPeer(serial, TOKEN, "http", "http", 0))
        self.core.recognise(wire.Hello(serial, TOKEN, 1))

    def stub(
        self, serial: int, generation: int = 1, page: Page | None = None, demand: str = ""
    ) -> None:
        self.core.expect(wire.ExpectPeer(serial, TOKEN, "stub", f"m_{serial}", 0))
        self.core.recognise(wire.Hello(serial, TOKEN, 1))
        self.core.connected(wire.Hello(serial, TOKEN, 1), [], self.now)
        self.core.attach(
            wire.AttachInstance(generation, serial, f"m_{serial}", demand), self.now, page
        )
        self.take()

    def infer(self, peer: int, *rows: wire.Request, body: bytes = b"body") -> None:
        self.core.infer(peer, list(rows), [body] * len(rows), self.now)
        self.take()

    def cancel(self, peer: int, *ids: int) -> None:
        self.core.cancel(peer, list(ids), self.now)
        self.take()

    def finish(
        self,
        serial: int,
        *,
        code: int = 0,
        returned: bool = True,
        answer: tuple[bytes, list[wire.Block]] = (b"", []),
    ) -> list[wire.BatchedRequest]:
        """The stub answers all of its oldest batch."""
        works = self.works.get(serial, [])
        number = works[0].batch
        batch = [w for w in works if w.batch == number]
        self.works[serial] = [w for w in works if w.batch != number]
        body, blocks = answer
        outcomes = [wire.Outcome(w.peer, w.id, code, "", wire.FINAL, 0, blocks) for w in batch]
        executed = [wire.Executed(number, 1, 2, 3)] if returned else []
        message = wire.Results(outcomes, executed)
        self.core.results(serial, message, [body] * len(outcomes), self.now)
        self.take()
        return batch

    def gone(self, serial: int, reason: str = "killed by SIGKILL") -> None:
        self.core.remove_peer(wire.PeerDied(serial, reason), self.now)
        self.works.pop(serial, None)
        self.take()

    def tick(self, by: int) -> None:
        self.now += by
        self.core.tick(self.now)
        self.take()

    def take(self) -> None:
        """Empties the outbox as the service would."""
        outbox = self.core.outbox
        for serial, rows in outbox.works.items():
            self.works.setdefault(serial, []).extend(work for work, _ in rows)
            self.bodies.update(((work.peer, work.id), body) for work, body in rows)
        for serial, routes in outbox.abandons.items():
            self.abandoned.extend((serial, route) for route in routes)
        for peer, answers in outbox.replies.items():
            for reply, body in answers:
                self.replies.setdefault((peer, reply.id), []).append(reply)
                self.reply_bodies.setdefault((peer, reply.id), []).append(body)
        for owner, blocks in outbox.releases.items():
            self.released.setdefault(owner, []).extend(blocks)
        for owner, blocks in outbox.leases.items():
            self.lent.setdefault(owner, []).extend(blocks)
        self.settled += outbox.settled
        for serial, grants in outbox.grants.items():
            self.granted.setdefault(serial, []).extend(grant.responses for grant in grants)
        self.told.extend(outbox.supervisor)
        self.told.extend(answer for _, answer in outbox.asides)
        outbox.__init__()  # type: ignore[misc]

    def finals(self, peer: int, own_id: int) -> list[wire.Reply]:
        return [r for r in self.replies.get((peer, own_id), []) if r.flags & wire.FINAL]
