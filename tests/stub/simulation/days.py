"""Random days of a stub: a real `StubCore`, and brokers that die, a supervisor and clients, played.

A seed draws what happens next: a message arrives, a broker dies or follows, a sender of the model
answers or is let go, time passes, the loop has its turn. Amid execute() all of that happens too,
and a thread that waits runs rounds. Messages are encoded and decoded as on a socket; what a broker
has sent is readable after its death, and what it had not read is lost.

Promised at any moment: **a client gets one end of each request, a model executes it once, and a
stream ends with the number of its responses**. Promised of calls: **each has one
final reply, and what was answered is not asked again**. In the end, when all that can come has
come: **nothing is left open, and no code of the model waits for ever**.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from random import Random
from typing import Any
from unittest.mock import Mock

from tests.stub.fakes import LOAD, body
from zmqtriton.broker.service import Hellos
from zmqtriton_floor import wire
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.broker.between_threads import Bell
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.core import StubCore
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.watch import Watch

SECOND_NS = 1_000_000_000
CLIENT = 3
FINAL = wire.FINAL
_CALL = wire.Request(0, 0, "other", -1, 0, 0, 0, 0, 1, 0, 0)
_BODY = wire.encode_body(body())
_BOOTSTRAP = wire.Bootstrap(7, bytes(16), "stub", "/", 1, "{}")
#: So many things happen until a thread that waits must have what it waits for.
_PATIENCE = 400


class Connection:
    """The stub's end of a connection to a broker, and that broker's end."""

    is_blocked = is_dry = False

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = self.is_writable = self.is_peer_alive = is_open
        self._bell = Bell()
        #: What the stub reads, and what the broker reads.
        self.messages: deque[list[bytes]] = deque()
        self.sent: deque[list[bytes]] = deque()

    def fileno(self) -> int:
        return self._bell.descriptor

    def say(self, message: Any, *bodies: bytes) -> None:
        """Send the stub a message."""
        if self.is_peer_alive:
            self.messages.append([wire.encode(message), *bodies])
            self._bell.ring()

    def put(self, frames: list[bytes]) -> None:
        if frames and self.is_peer_alive:
            self.sent.append([bytes(frame) for frame in frames])
        self.is_writable = self.is_peer_alive

    def flush(self) -> int:
        return 0

    def finish(self) -> None:
        """Leave nothing behind: each message has left."""

    def has_input(self) -> bool:
        if not self.messages:
            self.is_open = self.is_open and self.is_peer_alive
            if self.is_open:
                self._bell.silence()
        return bool(self.messages)

    def close(self, within_ms: int = 0) -> None:
        self.is_open = False

    def end(self) -> None:
        """End with the broker."""
        self.is_peer_alive = False
        self.sent.clear()
        self._bell.ring()  # for ever


class Asked:
    """One request of a client, which outlives brokers."""

    def __init__(self, own_id: int) -> None:
        self.own_id = own_id
        self.executions = 0
        #: Number of responses that the model has sent and that have come, and the end; None before.
        self.sent = self.received = 0
        self.end: wire.Outcome | None = None
        self.is_cancelled = False
        #: The model has said the end itself.
        self.is_ended_by_model = False


class Day:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.is_decoupled = random.random() < 0.5
        self.now_ns = SECOND_NS
        self.epoch, self.is_alive = 1, True
        #: Words of the supervisor on their way, and those that the loop has yet to take.
        self.lifeline: deque[Any] = deque()
        self.inbox: deque[Any] = deque()
        self.work = Connection(is_open=False)
        self.calls = Connection(is_open=False)
        self.asked: dict[int, Asked] = {}
        self._restart_broker()
        #: Senders of the model, by the ids of their requests.
        self.senders: dict[int, Any] = {}
        self.questions: list[BlsCall] = []
        #: Ids of calls whose final reply the broker has sent, before its death or later.
        self.replied: set[int] = set()
        #: Broken promises that are seen amid execute(), where the stub would take an exception.
        self.broken: list[str] = []
        #: Executions that the present one is amid, itself among them.
        self._depth = 0
        self._is_ending = False
        #: When the loop looks again if nothing comes.
        self._due_ns = 0.0
        instance = StubInstance(LOAD, lambda message: None)
        instance.is_decoupled = self.is_decoupled
        self.watch = watch = Watch()
        model = PythonModel(LOAD, None, watch)
        # in place of code that is loaded from a file
        model._execute, model._is_decoupled = self._execute, self.is_decoupled
        lines = BrokerLine(watch.loop, self._dial), BrokerLine(watch.replies, self._dial)
        self.core = StubCore(
            instance,
            model,
            lines,
            watch,
            _BOOTSTRAP,
            progress=Mock(ProgressView),
            warmup=Warmup({}, ""),
        )
        instance.allow(self.core.asker)
        self.core.connect()

    def close(self) -> None:
        self.senders.clear()
        self.watch.close()

    def _dial(self, address: str) -> Connection:
        is_open = self.is_alive and address.endswith(f"-{self.epoch}")
        connection = Connection(is_open=is_open)
        if "stubs" in address:
            self.work = connection
        else:
            self.calls = connection
        return connection

    # ---------------------------------------------------------------- broker

    def _restart_broker(self) -> None:
        """Forget what dies with a broker."""
        self._hellos, self.is_welcome = Hellos(), False
        #: Ids of requests to be executed, and the number of batches that the stub executes.
        self.queue: deque[int] = deque()
        self.executing = 0
        self._last_batch = self.epoch * 1000
        self.open_calls: list[int] = []
        #: What clients have not read: it dies with the broker.
        self.unread: deque[wire.Outcome] = deque()

    def kill_broker(self) -> None:
        self.is_alive = False
        self.work.end()
        self.calls.end()

    def follow_broker(self) -> None:
        """Start the next broker, and have the supervisor say so."""
        self.epoch, self.is_alive = self.epoch + 1, True
        self._restart_broker()
        self.lifeline.append(wire.NewEpoch(self.epoch))

    def ask(self) -> None:
        """Have a client ask."""
        own_id = len(self.asked) + 1
        self.asked[own_id] = Asked(own_id)
        self.queue.append(own_id)

    def send_batch(self) -> None:
        self._last_batch += 1
        ids = [self.queue.popleft() for _ in range(min(len(self.queue), self.random.randint(1, 3)))]
        self.executing += 1
        flags = wire.ANSWERS_WAIT if self.unread else 0
        works = [wire.BatchedRequest(self._last_batch, CLIENT, one, flags, 0, 0, 0) for one in ids]
        self.work.say(wire.Execute(works), *[_BODY] * len(works))

    def read_work(self) -> None:
        """Have the broker read the next message of the stub."""
        header, *bodies = self.work.sent.popleft()
        message = wire.decode(header)
        if type(message) is wire.Hello:
            whole = self._hellos.join(self.work, message, bodies)
            if whole is not None:
                self._welcome(whole[0])
        elif type(message) is wire.Results:
            self.unread += message.outcomes
            self.executing -= len(message.executed)

    def _welcome(self, hello: wire.Hello) -> None:
        self.is_welcome = True
        self.unread += hello.unconfirmed
        held = {row.id for row in hello.received} | {row.id for row in hello.unconfirmed}
        for one in self.asked.values():
            if one.end is None and one.own_id not in held and one.own_id not in self.queue:
                self.queue.append(one.own_id)  # its client repeats it
        self.executing = hello.is_executing
        self.work.say(wire.Welcome(self.epoch))

    def read_answer(self) -> None:
        """Have a client read what its request has got."""
        outcome = self.unread.popleft()
        one = self.asked[outcome.id]
        if outcome.flags == wire.SENT:
            if outcome.number > one.received:
                self._cancel(one)
        elif one.end is not None:
            assert outcome.flags == FINAL, "a response comes behind the end"
            assert outcome == one.end._replace(number=outcome.number), "a request has two ends"
        elif not outcome.flags:
            if outcome.number == one.received:
                one.received += 1
            elif outcome.number > one.received:
                self._cancel(one)
        else:
            one.end = outcome
            # by which its reader knows whether some have died with a broker
            is_whole = outcome.number == one.sent
            assert is_whole or outcome.code or one.is_cancelled, "an end does not count responses"
            assert one.is_ended_by_model or outcome.code, "what was let go of ends well"

    def _cancel(self, one: Asked) -> None:
        one.is_cancelled = True
        self.work.say(wire.CancelExecution([wire.RequestKey(CLIENT, one.own_id)]))

    def grant(self, one: Asked) -> None:
        """Tell the stub what a client has read, and again what was cancelled."""
        self.work.say(wire.StreamAcks([wire.StreamAck(CLIENT, one.own_id, one.received)]))
        if one.is_cancelled:
            self._cancel(one)

    def read_call(self) -> None:
        header, *_ = self.calls.sent.popleft()
        message = wire.decode(header)
        if type(message) is wire.Infer:
            [row] = message.requests
            assert row.id not in self.replied, "what was answered is asked again"
            self.open_calls.append(row.id)

    def reply(self) -> None:
        own_id = self.open_calls.pop(self.random.randrange(len(self.open_calls)))
        self.replied.add(own_id)
        row = wire.Reply(own_id, 0, "", FINAL, 0, 9)
        self.calls.say(wire.Replies([row]), b"")

    # ------------------------------------------------------------------ model

    def _execute(self, requests: list[Any]) -> Any:
        responses = []
        for request in requests:
            # as the stub knows it: models do not see it
            own_id = request._pending.work.id
            one = self.asked[own_id]
            one.executions += 1
            if one.executions > 1:
                self.broken.append("a request is executed twice")
            is_owed = self.is_decoupled or self.random.random() < 0.3
            one.is_ended_by_model = not is_owed
            if is_owed:
                self.senders[own_id] = request.get_response_sender()
            responses.append(None if is_owed else pb_utils.InferenceResponse())
        del requests, request
        self._depth += 1
        self.run(self.random.randint(0, 6))
        if self.random.random() < 0.3:
            self._call()
        self._depth -= 1
        return None if self.is_decoupled else responses

    def _call(self) -> None:
        question = self.core.asker.ask(_CALL, b"")
        self.questions.append(question)
        if self.random.random() < 0.3:
            self.core.asker.drop(question)  # the model does not want the replies
            return
        for _ in range(_PATIENCE):
            if not question.inbox.empty():
                return
            self.step()
        self.broken.append("code of the model waits for ever")

    def use_sender(self) -> None:
        own_id = self.random.choice([*self.senders])
        one, way = self.asked[own_id], self.random.random()
        if way < 0.2:
            del self.senders[own_id]  # forgotten, which ends it with an error
            gc.collect(0)
        elif way < 0.6 and self.is_decoupled:
            self.senders[own_id].send(pb_utils.InferenceResponse())
            one.sent += 1
        else:
            one.is_ended_by_model = True
            sender = self.senders.pop(own_id)
            sender.send(None if self.is_decoupled else pb_utils.InferenceResponse(), FINAL)

    # ------------------------------------------------------------------- loop

    def turn(self) -> None:
        """Do what the loop does when it waits, and executes."""
        core, watch = self.core, self.watch
        ready = {descriptor for descriptor, _ in watch.loop.poll(0)}
        if not (ready or self.lifeline or self.inbox or self.now_ns >= self._due_ns):
            return  # it waits
        if watch.bell_descriptor in ready:
            watch.awake()
        if watch.replies.fileno() in ready:
            core.asker.turn()
        self.inbox.extend(self.lifeline)
        self.lifeline.clear()
        core.advance()
        assert [] == [*core.take(self.inbox)]
        while core.link.batches:
            core.executions.begin(core.link.batches.popleft())
        idle_s = core.due(lambda: self.now_ns / SECOND_NS)
        self._due_ns = math.inf if idle_s is None else self.now_ns + idle_s * SECOND_NS
        watch.follow(core.asker.orphans)

    def run_round(self) -> None:
        """Do what a thread does that waits amid execute()."""
        core = self.core
        if self.lifeline:
            self.inbox.append(self.lifeline.popleft())
        core.advance(is_amid=True)
        assert [] == [*core.take(self.inbox, is_amid=True)]

    def actions(self) -> list[Any]:
        """Return what can happen now; what shall happen more often is there several times."""
        actions: list[Any] = [self.sleep]
        actions += [self.run_round if self._depth else self.turn] * 4
        if not self.is_alive:
            actions.append(self.follow_broker)
        elif not self._is_ending:
            actions += [self.kill_broker, self.ask]
        actions += [self.read_work] * 4 if self.work.sent else []
        actions += [self.read_call] * 4 if self.calls.sent else []
        actions += [self.read_answer] * 2 if self.unread and self.is_alive else []
        actions += [self.core.asker.turn] if self.calls.messages else []
        actions += [self.reply] * 2 if self.open_calls and self.is_alive else []
        actions += [self.use_sender] * 2 if self.senders else []
        if self.is_alive and self.is_welcome:
            actions += [self.send_batch] * 2 if self.queue and not self.executing else []
            begun = [one for one in self.asked.values() if one.received or one.is_cancelled]
            if begun:
                actions.append(lambda: self.grant(self.random.choice(begun)))
        return actions

    def sleep(self) -> None:
        self.now_ns += self.random.choice([1, 50_000_000, 2 * SECOND_NS])

    def step(self) -> None:
        self.random.choice(self.actions())()
        assert not self.broken, self.broken[0]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def run_to_end(self) -> None:
        """Let everything come to its end; raise AssertionError if something is left."""
        if not self.is_alive:
            self.follow_broker()
        self._is_ending = True
        self.run(20 * _PATIENCE)
        core, link = self.core, self.core.link
        assert link.epoch == self.epoch, "no broker has welcomed the stub"
        left = [one.own_id for one in self.asked.values() if one.end is None]
        assert not left, f"requests without an end: {left}"
        assert ({}, 0, {}) == (link.pending, len(link.batches), link.executing)
        # calls without a final reply
        assert ({}, 0) == (core.asker._open, core.asker.orphans)
        for question in self.questions:
            replies = [*question.arrived()]
            assert question.is_dropped or 1 == len(replies), "a call has no final reply, or two"
