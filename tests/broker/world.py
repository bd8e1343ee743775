"""A broker's core with imagined peers, driven by hand: no sockets, no clock but `now`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from zmqtriton.broker.core import BrokerCore
from zmqtriton_floor import wire
from zmqtriton_floor.execution_progress import EPOCH_SHIFT
from zmqtriton_floor.settings.broker import BrokerSettings

TOKEN = b"t" * 16
#: The frontend of most worlds, and their stubs.
F, S, S2, S3 = 1, 2, 3, 4
MILLISECOND, SECOND = 1_000_000, 1_000_000_000


def request(own_id: int, generation: int = 1, **fields: Any) -> wire.Request:
    """A plain request, but for the fields given."""
    return wire.Request(own_id, generation, "", -1, 0, 0, 0, 0, 1, 0, 0)._replace(**fields)


def outcome(own_id: int, **fields: Any) -> wire.Outcome:
    """The only outcome of F's request, but for the fields given."""
    return wire.Outcome(F, own_id, 0, "", wire.FINAL)._replace(**fields)


class Page:
    """A progress page that the test writes; as zmqtriton_floor.execution_progress.ProgressView."""

    #: Without names nobody can say what was begun.
    has_names = True

    def __init__(self) -> None:
        self.last_begun_batch = 0
        self._fence = 0
        self.is_closed = False
        self._keys: set[tuple[int, int]] = set()

    def begin(self, batch: int, keys: Collection[tuple[int, int]]) -> bool:
        self.last_begun_batch = max(self.last_begun_batch, batch)
        if batch >> EPOCH_SHIFT < self._fence:
            return False
        self._keys.update(keys)
        return True

    def fence(self, epoch: int) -> None:
        self._fence = epoch

    def may_have_begun(self, key: tuple[int, int]) -> bool:
        return not self.has_names or key in self._keys

    def begun_keys(self) -> frozenset[tuple[int, int]] | None:
        return frozenset(self._keys) if self.has_names else None

    def close(self) -> None:
        self.is_closed = True


class BrokerHarness:
    """Supervisor, frontends and stubs in one, around a broker's core."""

    def __init__(self) -> None:
        self.core = BrokerCore()
        self.now = 1_000
        #: Every reply that went out: (peer, id) -> replies in order.
        self.replies: dict[tuple[int, int], list[wire.Reply]] = {}
        self.batched_requests: dict[int, list[wire.BatchedRequest]] = {}
        self.cancelled_executions: list[tuple[int, wire.RequestKey]] = []
        self.supervisor_messages: list[Any] = []
        #: Messages about the memory of dead processes.
        self.leased_segments: list[Any] = []
        #: Those of them that a supervisor keeps for a later broker's sake.
        self.settled: list[wire.Settled] = []
        #: Of the works and of the replies, by route.
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.reply_bodies: dict[tuple[int, int], list[bytes]] = {}
        #: What owners of memory were told, and how far the readers of streams have come.
        self.released_blocks: dict[int, list[wire.Block]] = {}
        self.acknowledged_responses: dict[int, list[int]] = {}
        self.passed_responses: dict[int, list[int]] = {}
        self.leased_blocks: dict[int, list[wire.Block]] = {}
        self.leases_reported: list[int] = []
        self.stage_times: list[tuple[int, wire.StageTimes]] = []

    @classmethod
    def serving(
        cls,
        *stubs: int,
        config: dict[str, Any] | None = None,
        settings: BrokerSettings | None = None,
        epoch: int = 1,
        has_pages: bool = False,
        **hello: Any,
    ) -> BrokerHarness:
        """Return a world with a version of the model m, the frontend F and these stubs."""
        world = cls()
        world.core.configure(epoch, settings or BrokerSettings(), lambda: world.now)
        world.add_generation(config={"name": "m", **(config or {})})
        world.add_frontend(F)
        for serial in stubs:
            world.add_stub(serial, page=Page() if has_pages else None, **hello)
        return world

    def add_generation(
        self, generation: int = 1, version: int = 1, config: dict | None = None
    ) -> None:
        config = config or {"name": "m"}
        message = wire.AddGeneration(generation, config["name"], version, json.dumps(config))
        self.core.add_generation(message)

    def retire(self, generation: int, serial: int = 0) -> None:
        self.core.retire(wire.Retire(generation, serial))
        self.drain_outbox()

    def remove(self, generation: int, reason: str = "unloaded") -> None:
        self.core.remove(wire.RemoveGeneration(generation, reason), self.now)
        self.drain_outbox()

    def add_frontend(self, serial: int) -> None:
        self.core.expect(wire.ExpectPeer(serial, TOKEN, "http", "http", 0))
        self.core.authenticate(wire.Hello(serial, TOKEN, 1))

    def remove_all(self) -> None:
        for generation in list(self.core.generations.by_number.values()):
            self.core.remove(wire.RemoveGeneration(generation.number, "the end"), self.now)
        self.drain_outbox()

    def add_stub(
        self,
        serial: int,
        generation: int = 1,
        page: Page | None = None,
        demand: str = "",
        **hello: Any,
    ) -> None:
        self.expect_stub(serial)
        self.say_hello(serial, **hello)
        self.attach(serial, generation, page, demand)
        self.drain_outbox()

    def say_hello(self, serial: int, **fields: Any) -> None:
        """Connect a stub that is expected."""
        hello = wire.Hello(serial, TOKEN, 1, **fields)
        self.core.authenticate(hello)
        self.core.connected(hello, [], self.now)
        self.drain_outbox()

    def expect_stub(self, serial: int) -> None:
        self.core.expect(wire.ExpectPeer(serial, TOKEN, "stub", f"m_{serial}", 0))

    def attach(
        self, serial: int, generation: int = 1, page: Page | None = None, demand: str = ""
    ) -> None:
        attach = wire.AttachInstance(generation, serial, f"m_{serial}", demand)
        self.core.attach(attach, self.now, page)

    def infer(self, peer: int, *rows: wire.Request, body: bytes = b"body") -> None:
        self.core.infer(peer, list(rows), [body] * len(rows), self.now)
        self.drain_outbox()

    def cancel(self, peer: int, *ids: int) -> None:
        self.core.cancel(peer, list(ids), self.now)
        self.drain_outbox()

    def finish_batch(
        self,
        serial: int,
        *,
        returned: bool = True,
        answer: tuple[bytes, list[wire.Block]] = (b"", []),
        **fields: Any,
    ) -> list[wire.BatchedRequest]:
        """The stub answers all of its oldest batch, with these fields of the outcomes."""
        batch = self.take_batch(serial)
        body, blocks = answer
        fields = {"blocks": blocks, **fields}
        outcomes = [outcome(work.id, peer=work.peer, **fields) for work in batch]
        executed = [wire.Executed(batch[0].batch, 1, 2, 3)] if returned else []
        self.send_results(serial, *outcomes, executed=executed, body=body)
        return batch

    def take_batch(self, serial: int) -> list[wire.BatchedRequest]:
        """Take the oldest batch from what a stub has."""
        works = self.batched_requests.get(serial, [])
        number = works[0].batch
        self.batched_requests[serial] = [w for w in works if w.batch != number]
        return [w for w in works if w.batch == number]

    def send_results(
        self,
        serial: int,
        *outcomes: wire.Outcome,
        executed: Iterable[wire.Executed] = (),
        again: Iterable[wire.RequestKey] = (),
        body: bytes = b"body",
    ) -> None:
        """A stub's outcomes, each with the body, its batches that are over, what it wants again."""
        message = wire.Results([*outcomes], [*executed], [*again])
        self.core.results(serial, message, [body] * len(outcomes), self.now)
        self.drain_outbox()

    def kill_peer(self, serial: int, reason: str = "killed by SIGKILL", *, guest: int = 0) -> None:
        self.core.remove_peer(wire.PeerDied(serial, reason, guest), self.now)
        self.batched_requests.pop(serial, None)
        self.drain_outbox()

    def tick(self, by: int) -> None:
        self.now += by
        self.core.tick(self.now)
        self.drain_outbox()

    def statistics(self, model: str = "m", kind: int = 0, offset_ns: int = 0) -> dict[str, Any]:
        """Return what the broker answers to a question about its counters."""
        self.core.ask_statistics(F, wire.AskStatistics(5, model, -1, kind), offset_ns, self.now)
        self.drain_outbox()
        return json.loads(self.supervisor_messages[-1].result)

    def figures(self, offset_ns: int = 0) -> dict[str, Any]:
        """Return the counters of the only version, those that Triton has not."""
        [entry] = self.statistics(offset_ns=offset_ns)["model_stats"]
        return entry["zmqtriton"]

    def drain_outbox(self) -> None:
        """Ends the turn and empties the outbox, as the service would."""
        self.core.tick(self.now)
        # held after each turn of every test
        assert not self.core._dispatch.marked, "what can be dispatched would wait for an event"
        self._empty_outbox()

    def _empty_outbox(self) -> None:
        outbox = self.core.outbox
        for serial, rows in outbox.batched_requests.items():
            self.batched_requests.setdefault(serial, []).extend(work for work, _ in rows)
            self.bodies.update(((work.peer, work.id), body) for work, body in rows)
        for serial, routes in outbox.cancellations.items():
            self.cancelled_executions.extend((serial, route) for route in routes)
        for peer, answers in outbox.replies.items():
            for reply, body in answers:
                self.replies.setdefault((peer, reply.id), []).append(reply)
                self.reply_bodies.setdefault((peer, reply.id), []).append(body)
        for owner, blocks in outbox.releases.items():
            self.released_blocks.setdefault(owner, []).extend(blocks)
        for owner, blocks in outbox.leases.items():
            self.leased_blocks.setdefault(owner, []).extend(blocks)
        self.leases_reported += outbox.reported_owners
        self.stage_times += outbox.stage_times
        for serial, grants in outbox.stream_acks.items():
            self.acknowledged_responses.setdefault(serial, []).extend(
                grant.responses for grant in grants
            )
            self.passed_responses.setdefault(serial, []).extend(grant.passed for grant in grants)
        for act in outbox.once_delivered:
            act()
        for message in outbox.supervisor:
            kind = type(message)
            words = {wire.Settled: self.settled, wire.LeasedSegments: self.leased_segments}
            words.get(kind, self.supervisor_messages).append(message)
        self.supervisor_messages.extend(answer for _, answer in outbox.asides)
        outbox.__init__()  # type: ignore[misc]

    def executing(self, serial: int = S) -> list[int]:
        """Return the ids of the requests that a stub has."""
        return [work.id for work in self.batched_requests.get(serial, ())]

    def texts(self, *ids: int) -> list[str]:
        """Return the texts of the final replies to F's requests."""
        return [reply.text for own_id in ids for reply in self.finals(F, own_id)]

    def finals(self, peer: int, own_id: int) -> list[wire.Reply]:
        return [r for r in self.replies.get((peer, own_id), []) if r.flags & wire.FINAL]
