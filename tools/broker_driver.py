"""The requests that one broker carries, measured without frontends and stubs.

    python -m tools.broker_driver --frontends 1 4 16 --stubs 1 4 16 64 --clients 1 8 32
    python -m tools.broker_driver --pythons .venv/bin/python OTHER/.venv/bin/python

A real broker is started with each interpreter, by turns, so that two trees or builds can be
compared. One process speaks for its supervisor, its frontends and its stubs over real sockets. A
reply is followed by the next request at once, so there are always as many as there are clients.
Messages have the size and the fields of those of a small request to a plain model, and each request
and each batch has one of its own: so the broker reads several at once where it is behind.

Printed for each row, as the median of the rounds: requests a second; CPU of the broker per request
(by the kernel's clock of it, to the nanosecond), and the share that was spent in system calls; the
ceiling, which is what that CPU allows on a core of its own; and the ratio of CPU to that of the
first interpreter in the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from zmqtriton_floor import endpoints, execution_progress, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.zmtp import Dealer

_TOKEN, _EPOCH = b"t" * 16, 1
_NUMBERS = {kind: number for number, kind in wire.KINDS.items()}
_BODY = wire.encode_body(
    wire.RequestBody("", {}, [], [wire.Tensor("INPUT0", 11, [1, 16], bytes(64))])
)
_ANSWER = wire.encode_body(wire.ResponseBody({}, [wire.Tensor("OUTPUT0", 11, [1, 16], bytes(64))]))
_CONFIG = {
    "name": "m",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [16]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [16]}],
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "plain": _CONFIG,
    "batches": {**_CONFIG, "max_batch_size": 8, "dynamic_batching": {}},
    "stream": {**_CONFIG, "model_transaction_policy": {"decoupled": True}},
}
#: Responses of a stream, each in a message of its own.
_RESPONSES = 4
_WARM_S = 0.3


class Row(NamedTuple):
    kind: str
    frontends: int
    stubs: int
    clients: int


class Figures(NamedTuple):
    """What one broker did for one row in one round."""

    rate: float
    cpu_us: float
    #: The part of the CPU that was spent in the kernel.
    system: float


class Broker:
    """A broker's process, its lifeline, and the peers that are played to it."""

    def __init__(self, python: str, row: Row) -> None:
        self._row = row
        self._directory = tempfile.mkdtemp(prefix="broker")
        begun = os.memfd_create("begun")
        os.truncate(begun, 1 << 16)
        ours, theirs = pair()
        for descriptor in (begun, theirs.fileno()):
            os.set_inheritable(descriptor, True)
        self._supervisor = Lifeline(ours)
        words = ("--lifeline", str(theirs.fileno()), "--begun", str(begun))
        self._process = subprocess.Popen(
            [os.path.abspath(python), "-m", "zmqtriton.broker", *words],
            pass_fds=(begun, theirs.fileno()),
            cwd=self._directory,
        )
        theirs.close()
        os.close(begun)
        self.pid = self._process.pid
        self._epoll = select.epoll()
        self._frontends: dict[int, Dealer] = {}
        self._stubs: dict[int, Dealer] = {}
        self._introduce()
        self._ids = [0] * (row.frontends + 1)
        self.answered = 0

    def _introduce(self) -> None:
        """Tell the broker of its model and peers, and wait until all have been welcomed."""
        say = self._supervisor.send
        settings = encode(BrokerSettings())
        say(wire.Bootstrap(0, _TOKEN, "broker", self._directory, _EPOCH, settings))
        say(wire.AddGeneration(1, "m", 1, json.dumps(_CONFIGS[self._row.kind])))
        frontends = range(1, self._row.frontends + 1)
        stubs = range(1000, 1000 + self._row.stubs)
        for serial in (*frontends, *stubs):
            role = "http" if serial in frontends else "stub"
            say(wire.ExpectPeer(serial, _TOKEN, role, f"m_{serial}", 0))
            if role == "stub":
                page = os.memfd_create("page")
                os.truncate(page, execution_progress.SIZE)
                say(wire.AttachInstance(1, serial, f"m_{serial}"), page)
                os.close(page)
        for address_of, serials, dealers in (
            (endpoints.requests_address, frontends, self._frontends),
            (endpoints.stubs_address, stubs, self._stubs),
        ):
            address = address_of(self._directory, _EPOCH)
            for serial in serials:
                dealer = dealers[serial] = _connected(address)
                dealer.put([wire.encode(wire.Hello(serial, _TOKEN, _EPOCH))])
                dealer.flush()
                _await(dealer.has_input)
                dealer.receive()
                self._epoll.register(dealer, select.EPOLLIN)
        self._by_descriptor = {
            dealer.fileno(): (serial, dealer)
            for serial, dealer in (*self._frontends.items(), *self._stubs.items())
        }

    def begin(self) -> None:
        """Send the first request of each client."""
        row = self._row
        for serial, dealer in self._frontends.items():
            first, rest = divmod(row.clients, row.frontends)
            self._ask(serial, dealer, first + (serial <= rest))

    def _ask(self, serial: int, dealer: Dealer, count: int) -> None:
        if not count:
            return
        own_id = self._ids[serial]
        self._ids[serial] += count
        for n in range(1, count + 1):
            row = (own_id + n, 1, "", -1, 0, 0, 0, 0, 1, 0, 0, b"", "", 0, 0, 0)
            dealer.put((msgpack.packb((wire.VERSION, _NUMBERS[wire.Infer], [row], [])), _BODY))
        dealer.flush()

    def play(self, seconds: float) -> None:
        """Answer and ask for so long, and until a request has been answered."""
        until, before = time.monotonic() + seconds, self.answered
        poll, by_descriptor = self._epoll.poll, self._by_descriptor
        take, answer = self._take_replies, self._execute
        while time.monotonic() < until or self.answered == before:
            for descriptor, _ in poll(1):
                serial, dealer = by_descriptor[descriptor]
                finals, is_frontend = 0, serial < 1000
                while dealer.has_input():
                    frames = dealer.receive()
                    if is_frontend:
                        finals += take(frames)
                    else:
                        answer(dealer, frames)
                if is_frontend:
                    self.answered += finals
                    self._ask(serial, dealer, finals)
                elif not dealer.is_open:
                    sys.exit("the broker has ended a connection")

    @staticmethod
    def _take_replies(frames: list[bytes]) -> int:
        _, kind, rows = msgpack.unpackb(frames[0])
        assert wire.KINDS[kind] is wire.Replies, kind
        for row in rows:
            assert not row[1], row  # an error
        return sum(row[3] & wire.FINAL for row in rows)

    def _execute(self, dealer: Dealer, frames: list[bytes]) -> None:
        _, kind, rows, _ = msgpack.unpackb(frames[0])
        assert wire.KINDS[kind] is wire.Execute, kind
        batches: dict[int, list[tuple[int, int]]] = {}
        for row in rows:
            batches.setdefault(row[0], []).append((row[1], row[2]))
        begun_ns = time.monotonic_ns()
        for number, keys in batches.items():
            executed = [(number, 100, 200, 100, begun_ns)]
            last = 0
            if self._row.kind == "stream":
                last = _RESPONSES - 1
                for index in range(last):
                    self._results(dealer, [(*key, 0, "", 0, index, []) for key in keys], [])
            self._results(dealer, [(*key, 0, "", 1, last, []) for key in keys], executed)

    @staticmethod
    def _results(dealer: Dealer, outcomes: list[tuple[Any, ...]], executed: list[Any]) -> None:
        header = msgpack.packb((wire.VERSION, _NUMBERS[wire.Results], outcomes, executed, [], ""))
        dealer.put([header, *[_ANSWER] * len(outcomes)])
        dealer.flush()

    def close(self) -> None:
        self._supervisor.send(wire.Shutdown(0))
        for dealer in (*self._frontends.values(), *self._stubs.values()):
            dealer.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._supervisor.close()
        self._epoll.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _connected(address: str) -> Dealer:
    """Connect to a broker that may not listen yet."""
    until = time.monotonic() + 60
    while not (dealer := Dealer(address)).is_open:
        dealer.close()
        if time.monotonic() > until:
            sys.exit("the broker does not listen")
        time.sleep(0.005)
    return dealer


def _await(condition: Any) -> None:
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            sys.exit("the broker does not answer")
        time.sleep(0.005)


def _cpu_of(pid: int) -> tuple[int, int, int]:
    """Return the CPU of a process in ns, and its ticks in its own code and in the kernel."""
    own, kernel = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11:13]
    return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]), int(own), int(kernel)


def _measure(broker: Broker, seconds: float) -> Figures:
    before, begun, answered = _cpu_of(broker.pid), time.monotonic(), broker.answered
    broker.play(seconds)
    took = time.monotonic() - begun
    after, count = _cpu_of(broker.pid), max(1, broker.answered - answered)
    ns, own, kernel = (b - a for a, b in zip(before, after, strict=True))
    return Figures(count / took, ns / count / 1000, kernel / max(1, own + kernel))


@contextlib.contextmanager
def _playing(pythons: list[str], row: Row) -> Iterator[list[Broker]]:
    with contextlib.ExitStack() as stack:
        brokers = []
        for python in pythons:
            broker = Broker(python, row)
            stack.callback(broker.close)
            broker.begin()
            broker.play(_WARM_S)
            brokers.append(broker)
        yield brokers


def measure(pythons: list[str], row: Row, *, rounds: int, seconds: float) -> list[list[Figures]]:
    """Return the figures of each round, by interpreter. The others' brokers rest meanwhile."""
    with _playing(pythons, row) as brokers:
        turns = [[_measure(broker, seconds) for broker in brokers] for _ in range(rounds)]
    return [[*of] for of in zip(*turns, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    numbers: dict[str, Any] = {"type": int, "nargs": "+"}
    parser.add_argument("--kinds", nargs="+", default=["plain"], choices=list(_CONFIGS))
    parser.add_argument("--frontends", default=[1], **numbers)
    parser.add_argument("--stubs", default=[1], **numbers)
    parser.add_argument("--clients", default=[1, 8, 32], **numbers)
    parser.add_argument("--pythons", nargs="+", default=[sys.executable])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    words = parser.parse_args()
    print("kind     frontends stubs clients   tree   requests/s  CPU us  system  ceiling/s  ratio")
    for kind in words.kinds:
        for shape in (
            (frontends, stubs, clients)
            for frontends in words.frontends
            for stubs in words.stubs
            for clients in words.clients
        ):
            row = Row(kind, *shape)
            figures = measure(words.pythons, row, rounds=words.rounds, seconds=words.seconds)
            for number, rounds in enumerate(figures):
                rate, cpu_us, system = (statistics.median(of) for of in zip(*rounds, strict=True))
                ratio = statistics.median(
                    one.cpu_us / first.cpu_us for one, first in zip(rounds, figures[0], strict=True)
                )
                print(
                    f"{kind:8} {row.frontends:9} {row.stubs:5} {row.clients:7} {number:6} "
                    f"{rate:12.0f} {cpu_us:7.1f} {system:6.0%} {1e6 / cpu_us:10.0f} {ratio:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
