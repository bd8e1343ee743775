"""Kills amid work with tensors on a GPU: what clients got, and which memory stayed in use.

    python -m tests.gpu.kills [--memory files] [--mps auto] [--kills 4] [--clients 4]

For each kind of work, clients ask all the time while a stub is killed again and again; then a
client with memory of its own on the GPU is killed. Each answer is compared. Prints a row for each
kind, and ends with 1 if an answer was wrong, a model did not come back or memory stayed in use.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.gpu import MIB, SLACK, serving, used_bytes
from tests.standard.ctl.system.commands import ctl
from tests.support import leaks
from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.gpus.regions import Regions, client_cuda, infer
from tests.support.server import Server
from tests.support.tools import parse_options
from tests.support.waiting import eventually

MODELS = ["gpu_made", "gpu_read", "gpu_asker", "gpu_chain"]
ARRAY = np.arange(100_000, dtype=np.float32)
#: The sum of this one is computed by the model, number by number.
_SHORT = ARRAY[:1000]
#: One that dies more often counts as an instance that cannot work.
_PAUSE_S = 2.5
_Ask = Callable[[Any], bool]


def _make(client: Any) -> bool:
    result = client.infer("gpu_made", infer_inputs(module_of(client), X=ARRAY))
    return np.array_equal(ARRAY + 1, result.as_numpy("Y"))


def _hand_over(client: Any) -> bool:
    result = client.infer("gpu_chain", infer_inputs(module_of(client), X=ARRAY))
    is_right = np.array_equal(ARRAY + 2, result.as_numpy("Z"))
    return is_right and [1] == result.as_numpy("ON_GPU").tolist()


def _ask_models(client: Any) -> bool:
    how = {"reader": "gpu_read", "prefer": "GPU"}
    result = client.infer("gpu_asker", infer_inputs(module_of(client), X=_SHORT), parameters=how)
    report = json.loads(result.as_numpy("REPORT")[0])
    places = report["made_on_gpu"], report["on_gpu"]
    return (True, [1]) == places and float((_SHORT + 2).sum()) == report["sum"]


class InRegions:
    """Asks with both tensors in memory of the client's on the GPU."""

    def __init__(self, regions: Regions, name: str) -> None:
        self._regions = regions
        self._names = f"in-{name}", f"out-{name}"
        for region in self._names:
            regions.create(region, ARRAY)

    def __call__(self, client: Any) -> bool:
        source, target = self._names
        array = ARRAY + random.randrange(1000)
        self._regions.write(source, array)
        infer(client, "gpu_read", ("Y", source), ("Z", target), len(array), ["ON_GPU"])
        return np.array_equal(array + 1, self._regions.read(target, array))


class Kind(NamedTuple):
    """A kind of work, and the models whose processes are killed amid it."""

    name: str
    protocol: str
    victims: tuple[str, ...]
    ask: _Ask | None = None


KINDS = [
    Kind("a model's output", "grpc", ("gpu_made",), _make),
    Kind("an ensemble", "grpc", ("gpu_made", "gpu_read"), _hand_over),
    Kind("a model that asks", "http", ("gpu_asker", "gpu_made", "gpu_read"), _ask_models),
    Kind("a client's memory, gRPC", "grpc", ("gpu_read",)),
    Kind("a client's memory, HTTP", "http", ("gpu_read",)),
]


class _Client(threading.Thread):
    """Asks until it is stopped, and counts what it got."""

    def __init__(self, ask: _Ask, client: Any) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._client = client
        self.is_stopped = False
        self.got = Counter[str]()

    def run(self) -> None:
        with closing(self._client):
            while not self.is_stopped:
                try:
                    self.got["right" if self._ask(self._client) else "WRONG"] += 1
                except InferenceServerException as error:
                    self.got[str(error.message()).partition(".")[0]] += 1
                    time.sleep(0.01)


@contextmanager
def _asking(server: Server, kind: Kind, cuda: Any, count: int) -> Iterator[list[_Client]]:
    clients = list[_Client]()
    # a client of HTTP belongs to one thread, and its regions to the one that lives longest
    own = open_client(server, kind.protocol)
    regions = Regions(cuda, own)
    for number in range(count):
        ask = kind.ask or InRegions(regions, f"{kind.protocol}-{number}")
        clients.append(_Client(ask, open_client(server, kind.protocol)))
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.is_stopped = True
        for client in clients:
            client.join(60)
        regions.close()
        own.close()


def _right(clients: Sequence[_Client]) -> int:
    return sum(client.got["right"] for client in clients)


def _kill_one(server: Server, model: str, clients: Sequence[_Client]) -> float:
    """Kill a process of a model under load; return the ms until all of its instances serve."""
    before, pids = _right(clients), set(server.stub_pids(model))
    eventually(lambda: _right(clients) > before, 60, "answers before the kill")
    os.kill(random.choice([*pids]), signal.SIGKILL)
    killed_s = time.monotonic()

    def is_whole() -> bool:
        now = set(server.stub_pids(model))
        return len(now) == len(pids) and now != pids and server.is_ready()

    eventually(is_whole, 60, f"another process of {model}")
    before = _right(clients)
    eventually(lambda: _right(clients) > before, 60, "answers after the kill")
    return 1000 * (time.monotonic() - killed_s)


def _settled(memory: str, server: Server, at_most: int) -> int:
    """Return what is in use when it is no more than this, or in the end."""
    try:
        eventually(lambda: used_bytes(memory, server) <= at_most, 30)
    except AssertionError:
        print(f"  more than {at_most / MIB:.0f} MiB stay in use", flush=True)
    return used_bytes(memory, server)


def _under_load(
    memory: str, server: Server, cuda: Any, kind: Kind, options: Any
) -> tuple[Counter[str], list[float], int, int]:
    """Return what clients got, the ms of each return, and what was in use before and after."""
    with _asking(server, kind, cuda, options.clients) as clients:
        eventually(lambda: _right(clients) > 5 * len(clients), 60, "answers")
    before = used_bytes(memory, server)
    with _asking(server, kind, cuda, options.clients) as clients:
        back_ms = []
        for number in range(options.kills):
            back_ms.append(_kill_one(server, kind.victims[number % len(kind.victims)], clients))
            time.sleep(_PAUSE_S)
    got = sum((client.got for client in clients), Counter[str]())
    return got, back_ms, before, _settled(memory, server, before + SLACK)


def _owner_dies(memory: str, server: Server, options: Any) -> tuple[Counter[str], int, int]:
    """Kill clients that own memory amid their requests."""
    got, before = Counter[str](), used_bytes(memory, server)
    command = [sys.executable, "-m", "tests.gpu.owner", memory, server.grpc_address]
    for number in range(options.kills):
        words = [*command, str(number), str(server.scratch)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            got.update(owner.stdout.readline().strip() for _ in range(20))
            owner.kill()
    client = open_client(server, "grpc")
    for number in range(options.kills):
        for region in (f"in-owner-{number}", f"out-owner-{number}"):
            client.unregister_cuda_shared_memory(region)
    client.close()
    return got, before, _settled(memory, server, before + SLACK)


def _print_row(
    name: str, got: Counter[str], back_ms: Sequence[float], before: int, after: int
) -> bool:
    """Print what was seen, and return whether it is as it should be."""
    failed = Counter({text: n for text, n in got.items() if text not in ("right", "WRONG")})
    back = f"{median(back_ms):6.0f} {max(back_ms):6.0f}" if back_ms else f"{'':13}"
    print(
        f"{name:26} {got['right']:6} {failed.total():6} {got['WRONG']:6} {back} "
        f"{before / MIB:8.0f} {after / MIB:8.0f}",
        flush=True,
    )
    for text, count in failed.most_common(3):
        print(f"    {count} x {text}", flush=True)
    return got["right"] > 0 and not got["WRONG"] and after <= before + SLACK


def main() -> int:
    options = parse_options(
        __doc__,
        memory=("cuda", "cuda, or files"),
        mps=("off", "off, or auto"),
        kills=(4, "of each kind"),
        clients=(4, "at a time"),
    )
    mark, memory = leaks.mark_session(), options.memory
    at_first, segments = leaks.take_snapshot(mark), leaks.shared_memory()
    are_right = []
    print(f"{'':26}  right failed  WRONG   back ms: max  MiB before, after", flush=True)
    with serving(memory, MODELS, [f"--mps={options.mps}"]) as server:
        with client_cuda(server, memory) as cuda:
            for kind in KINDS:
                row = _under_load(memory, server, cuda, kind, options)
                are_right.append(_print_row(kind.name, *row))
            got, before, after = _owner_dies(memory, server, options)
            are_right.append(_print_row("clients that die", got, [], before, after))
        rows = json.loads(ctl(server, "status", "--json").output).get("mps", [])
        are_right.append(options.mps == "off" or any(row["is_client"] for row in rows))
        print("MPS:", rows or "off", flush=True)
    # gevent keeps descriptors of threads that have ended
    left = [*leaks.leaked_processes(at_first, mark), *(leaks.shared_memory() - segments)]
    print("left behind:", left or "nothing")
    return int(bool(left) or not all(are_right))


if __name__ == "__main__":
    sys.exit(main())
