"""Documents that cost their reader much: `python -m tests.faults.attacks.documents --seed 1`.

Attackers send one document after the other by every door that the server has: each route that its
/openapi.json names, each RPC of its table, and what extras add (`tests/hostile.py` of each). The
seed chooses kind, size, depth and coding. Clients of another address ask another model meanwhile,
each 20 ms, over HTTP, over gRPC, and as extras say. Printed for each attack: the longest wait of
any of them, the longest time for which a process of the server has kept its interpreter's lock,
frontends and models apart, and the memory of the frontends before it, at most, and after it.
`--tree PATH` prints the same of another tree beside it.

With `--minutes` attacks are drawn until then, and judged: by waits and memory, generously, since
the machine may be busy; by processes that have ended, by internal errors, and by the log.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
from google.protobuf.message import Message

import zmqtriton
import zmqtriton_extras
from tests.faults.attacks.__main__ import errors_of
from tests.faults.attacks.hostile import (
    JSON,
    OTHER,
    PATIENCE_S,
    VICTIM,
    Answer,
    Attack,
    House,
    Waits,
    asks_grpc,
    asks_http,
    drawn,
    many,
    member,
    post,
)
from tests.faults.attacks.watching import MIB, Gauge
from tests.faults.requests import grpc_request
from tests.frontends.grpc_api.fake_gateway import FakeGateway
from tests.support.loops.long_turns import long_turns
from tests.support.server import ROOT, Server
from tests.support.tools import parse_options
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.grpc_api.handlers import Rpc, table
from zmqtriton_protos import POOL, message

_REST_S, _CALM_S = 0.5, 3.0
#: Bounds of a run of minutes, on a machine that is busy with other things as well.
_MAX_WAIT_S, _MAX_KEPT_MIB = 2.0, 256
#: Parts of answers that tell of a fault of the server's.
_FAULTS = ("internal error", "its log says why")
_CLIENT_BYTES = 1 << 30
#: A model of texts, which it does not look at.
_STRINGS = "strings"
_CONFIG = """
backend: "python"
input { name: "INPUT0" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
"""
_CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUTPUT0", np.zeros(1, np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
_LOAD = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}


def posted_paths(description: Mapping[str, Any]) -> list[str]:
    """Return the paths of /openapi.json that take a body."""
    paths = description["paths"]
    return sorted(path for path in paths if paths[path].keys() & {"post", "put", "patch"})


def place_of(path: str) -> str:
    """Return the place of an attack on a path: of a model that attackers may do anything to."""
    model = "absent" if path.endswith("/unload") else VICTIM
    names = {"{model}": model, "{version}": "1"}
    for name, value in names.items():
        path = path.replace(name, value)
    return path.replace("{", "").replace("}", "")


def _fields_of(description: Mapping[str, Any], path: str) -> list[str]:
    """Return the names of the members of a path's document."""
    operation = next(iter(description["paths"][path].values()))
    with suppress(KeyError):
        operation = description["paths"][path]["post"]
    schema: Any = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    reference = schema.get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema = description["components"]["schemas"].get(reference, schema.get("schema", {}))
    return [name for name in schema.get("properties", {}) if name != "model"]


def found_over_http(server: Server, chance: random.Random) -> Iterator[Attack]:
    """Iterate over two attacks on each path of the server's own description."""
    description = server.request_json("/openapi.json")[1]
    base, paths = chance.random(), posted_paths(description)
    for path in chance.sample(paths, len(paths)):
        chance = random.Random(f"{base} {path}")  # the same where there are other paths as well
        fields = _fields_of(description, path) or ["parameters", "a"]
        for part in (fields, chance.sample(fields, 1)):
            name, text = drawn(chance, 60.0 / len(part))
            members = [b'"model":"parrot"', *(b'"%b":%b' % (each.encode(), text) for each in part)]
            body = b"{" + b",".join(members) + b"}"
            headers = JSON
            if chance.random() < 0.25:
                body, headers = gzip.compress(body, 1), {**JSON, "content-encoding": "gzip"}
                name += ", gzip"
            yield post(server, f"POST {path}", place_of(path), (name, body), headers)


def over_infer(server: Server) -> Iterator[Attack]:
    rows = {"[[1,2],…": b"[1,2]", "floats": b"0.1234", "objects": b'{"a":1}', "[]": b"[]"}
    for name, element in rows.items():
        text = many(element, 8)
        entry = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":%b}]}' % (
            text.count(b",") + 1,
            text,
        )
        for verb, body in (("infer", entry), ("generate", member("INPUT0", text))):
            yield post(server, f"POST …/{verb}", f"/v2/models/{VICTIM}/{verb}", (name, body))
    count = 12 * MIB
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "BYTES",
                    "shape": [count],
                    "parameters": {"binary_data_size": 4 * count},
                }
            ]
        }
    ).encode()
    headers = {"inference-header-content-length": str(len(head))}
    path = f"/v2/models/{_STRINGS}/infer"
    yield post(server, "POST …/infer", path, ("empty BYTES", head + bytes(4 * count)), headers)


# ------------------------------------------------------------------------- gRPC


def rpcs() -> list[Rpc]:
    """Return all RPCs that a server answers, by its own table."""
    return table(FakeGateway(), None)


def fill(into: Message, text: str, count: int, depth: int = 0) -> None:
    """Fill each field of a message: texts with the document, lists and maps with many elements."""
    for field in into.DESCRIPTOR.fields:
        own = getattr(into, field.name)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.name == "model_name":
            setattr(into, field.name, VICTIM)
        elif is_map:
            _fill_map(own, count)
        elif field.is_repeated and field.message_type is not None:
            for _ in range(count):
                own.add()
        elif field.message_type is not None and depth < 2:
            fill(own, text, count, depth + 1)
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES) and not field.is_repeated:
            value: Any = text if field.type == field.TYPE_STRING else text.encode()
            setattr(into, field.name, value)
        elif field.is_repeated and field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            own.extend(["" if field.type == field.TYPE_STRING else b""] * count)


def _fill_map(into: Any, count: int) -> None:
    for number in range(count):
        element = into[f"{number:x}"]  # makes it
        if "string_param" in element.DESCRIPTOR.fields_by_name:
            element.string_param = "a"


def input_of(rpc: Rpc) -> Message:
    service = rpc.service.replace("v1alpha", "v1")  # whose messages are the same
    method = POOL.FindServiceByName(service).methods_by_name[rpc.method]
    made: Message = message(method.input_type.full_name)()
    return made


def found_over_grpc(server: Server, chance: random.Random) -> Iterator[Attack]:
    """Iterate over three attacks on each RPC of the server's own table."""
    for rpc in sorted(rpcs(), key=lambda _: chance.random()):
        name, text = drawn(chance, 16.0)
        texts, lists = input_of(rpc), input_of(rpc)
        fill(texts, text.decode(), 1)
        fill(lists, "a", chance.choice((1 << 12, 1 << 16)))
        data = {
            "unknown fields": b"\xf8\x07\x01" * (8 * MIB),
            name: texts.SerializeToString(),
            "lists": lists.SerializeToString(),
        }
        for name, body in data.items():
            yield call(server, rpc, name, body)


def over_grpc(server: Server) -> Iterator[Attack]:
    """Iterate over texts in each form that a tensor has."""
    count = 8 << 20
    requests = {
        "empty BYTES": grpc_request(_STRINGS, INPUT0=("BYTES", (count,), bytes(4 * count))),
        "empty contents": grpc_request(_STRINGS, INPUT0=("BYTES", (count,), b"")),
        "parameters": grpc_request(VICTIM, INPUT0=("FP32", (1,), bytes(4))),
    }
    requests["empty contents"].ClearField("raw_input_contents")
    requests["empty contents"].inputs[0].contents.bytes_contents.extend([b""] * count)
    _fill_map(requests["parameters"].parameters, 1 << 14)
    for rpc in rpcs():
        if "Infer" in rpc.method:
            for name, request in requests.items():
                yield call(server, rpc, name, request.SerializeToString())


def call(server: Server, rpc: Rpc, name: str, data: bytes, model: str = "") -> Attack:
    path = f"/{rpc.service}/{rpc.method}"
    asking = functools.partial(_call, server.grpc_address, path, data, is_unary=bool(rpc.unary))
    return Attack(f"gRPC {rpc.method}", f"{model} {name}".strip(), len(data), asking)


def _call(address: str, path: str, data: bytes, *, is_unary: bool) -> Answer:
    plain: Any = {"request_serializer": bytes, "response_deserializer": bytes}
    with grpc.insecure_channel(address) as channel:
        try:
            if is_unary:
                channel.unary_unary(path, **plain)(data, timeout=PATIENCE_S)
            else:  # the end of some streams is the client's
                [*channel.stream_stream(path, **plain)(iter([data]), timeout=5)]
        except grpc.RpcError as error:
            return Answer(error.code().value[0], str(error.details())[:200])
    return Answer(0)


# ---------------------------------------------------------------------- a guest


def _as_guest(path: str, model: str, inputs: Mapping[str, Any], **more: Any) -> Answer:
    with zmqtriton.connect(path=path) as server:
        try:
            for _ in server.model(model).infer(inputs=inputs, **more):
                pass
        except ZmqTritonError as error:
            return Answer(error.http_status, error.text[:200])
    return Answer(200)


def by_guest(server: Server, chance: random.Random) -> Iterator[Attack]:
    """Iterate over attacks by a process that takes part, as embedded servers' programs do."""
    path, one = str(server.directory.parent / "r"), np.ones(1, np.float32)
    empty = np.full(4 << 20, b"", np.object_)
    name, text = drawn(chance, 16.0)
    asks: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "empty texts": (_STRINGS, {"INPUT0": empty}, {}),
        f"a text of {name}": (_STRINGS, {"INPUT0": np.array([text], np.object_)}, {}),
        f"a parameter of {name}": (VICTIM, {"INPUT0": one}, {"parameters": {"a": text.decode()}}),
        f"an id of {name}": (VICTIM, {"INPUT0": one}, {"request_id": text.decode()}),
    }
    for title, (model, inputs, more) in asks.items():
        asking = functools.partial(_as_guest, path, model, inputs, **more)
        yield Attack("guest infer", title, len(text), asking)


# ------------------------------------------------------------------------ a run


def _prepare(server: Server) -> None:
    server.add_model(OTHER, VICTIM)
    server.write_model(_STRINGS, _CONFIG, _CODE)


CORE = House(
    lambda server, chance: itertools.chain(
        over_infer(server),
        over_grpc(server),
        by_guest(server, chance),
        found_over_http(server, chance),
        found_over_grpc(server, chance),
    ),
    lambda directory: (
        f"--runtime-directory={directory / 'r'}",
        f"--client-memory-byte-size={_CLIENT_BYTES}",
        "--model-control-mode=explicit",
        "--load-model=*",
    ),
    prepare=_prepare,
    bystanders=lambda server: {
        "http": functools.partial(asks_http, server.http_port, f"/v2/models/{OTHER}/infer", _LOAD),
        "grpc": functools.partial(asks_grpc, server.grpc_port),
    },
)


def houses() -> dict[str, House]:
    """Return the houses of all extras that have doors, by their names, behind the server's own."""
    by_name = {"": CORE}
    for path in sorted(Path(zmqtriton_extras.__path__[0]).glob("*/tests/hostile.py")):
        name = path.parent.parent.name
        by_name[name] = importlib.import_module(f"zmqtriton_extras.{name}.tests.hostile").HOUSE
    return by_name


class Row(NamedTuple):
    """The figures of one attack; seconds and MiB."""

    wait_s: float
    lock_s: float
    model_s: float
    before: int
    peak: int
    after: int
    answer: Answer

    def __str__(self) -> str:
        times = f"{self.wait_s:8.2f}{self.lock_s:7.2f}{self.model_s:7.2f}"
        return f"{times}{self.before:7}{self.peak:6}{self.after:6}{self.answer.status:5}"


HEAD = f"{'wait s':>8}{'lock s':>7}{'model':>7}{'MiB':>7}{'peak':>6}{'after':>6}{'':5}"


class Scene:
    """A server with all doors, its bystanders, and what watches them."""

    def __init__(self, server: Server, gauge: Gauge, ticks: Path, waits: list[Waits]) -> None:
        self.server, self.waits = server, waits
        self.gauge, self._ticks = gauge, ticks
        self.calm_s = 0.0
        self.pids = server.pids()
        self._serving = {
            str(pid) for role, pids in self.pids.items() if role != "stub" for pid in pids
        }

    def _mib(self) -> int:
        return self._of(self.gauge.newest.own)

    def _of(self, own: Mapping[str, int]) -> int:
        return sum(mib for role, mib in own.items() if role != "stub")

    def measure(self, attack: Callable[[], Answer], rest_s: float = _REST_S) -> Row:
        time.sleep(rest_s)
        before = self._mib()
        self.gauge.take_peak()
        begun = time.monotonic()
        answer = attack()
        time.sleep(rest_s)
        peak, locks = self._of(self.gauge.take_peak().own), self._locks(begun)
        wait_s = max(each.longest_s(begun) for each in self.waits)
        return Row(wait_s, *locks, before, peak, self._mib(), answer)

    def _locks(self, begun: float) -> tuple[float, float]:
        """Return the longest time with the lock since then, in frontends and in models."""
        own, models = 0.0, 0.0
        for line in self._ticks.read_text().splitlines():
            pid, at, late_s = line.split()
            if float(at) >= begun and pid in self._serving:
                own = max(own, float(late_s))
            elif float(at) >= begun:
                models = max(models, float(late_s))
        return own, models


@contextmanager
def scene(tree: Path) -> Iterator[Scene]:
    """Serve all doors with the code of a tree, and let the bystanders ask."""
    doors = houses().values()
    roots = [str(tree / root) for root in (".", "stub", "frontends", "standard", "extras")]
    path = [str(Path(__file__).with_name("ticking")), *(roots if tree != ROOT else ())]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        directory = Path(folder)
        (ticks := directory / "ticks").touch()
        ticks.chmod(0o666)
        environment = {"PYTHONPATH": os.pathsep.join(path), "ZT_TICKS": str(ticks)}
        for house in doors:
            environment |= house.environment
        options = dict.fromkeys(option for house in doors for option in house.options(directory))
        models = (OTHER, "parrot")
        server = Server(
            directory / "s",
            models,
            options=[*options],
            environment=environment,
            frontends=("grpc",),
        )
        for house in doors:
            house.prepare(server)
        server.start()
        stack.callback(server.stop)  # of another tree, whatever it logs
        waits: list[Waits] = []
        for house in doors:
            for name, ask in house.bystanders(server).items():
                waits.append(Waits(ask, directory / f"{name}.waits"))
                stack.callback(waits[-1].end)
        gauge = stack.enter_context(Gauge(server))
        made = Scene(server, gauge, ticks, waits)
        made.measure(lambda: Answer(200), 1.0)  # those that start take their time
        made.calm_s = made.measure(lambda: Answer(200), _CALM_S).wait_s
        yield made


def streams_of(server: Server, seed: int, only: str) -> list[Iterator[Attack]]:
    """Return the attacks of each house; they are made one at a time, since they are large."""
    return [
        (each for each in attacks if only in f"{each.door}, {each.document}")
        for name, house in houses().items()
        for attacks in [house.attacks(server, random.Random(f"{seed} {name}"))]
    ]


def compare(trees: Sequence[Path], seed: int, only: str) -> list[str]:
    """Print the rows of all attacks, each tree's beside the others'."""
    rows: list[dict[str, Row]] = []
    for tree in trees:
        rows.append({})
        with scene(tree) as made:
            print(f"{tree}: calm {made.calm_s:.2f} s\n{'':60}{HEAD}", flush=True)
            for attack in itertools.chain(*streams_of(made.server, seed, only)):
                print(f"{attack.name:60}", end="", flush=True)
                rows[-1][attack.name] = row = made.measure(attack.send)
                print(f"{row} {row.answer.text[:60]!r}", flush=True)
            print(*long_turns(made.server.log_text()), sep="\n", flush=True)
    print(f"\nThe worst document of each door\n{'':60}{HEAD * len(trees)}")
    for door in dict.fromkeys(name.partition(",")[0] for name in rows[0]):
        worst = max(
            (row.wait_s, name) for name, row in rows[-1].items() if name.partition(",")[0] == door
        )[1]
        print(f"{worst:60}" + "".join(str(each.get(worst, "")) for each in rows))
    return []


def judge(seed: int, minutes: float, only: str) -> list[str]:
    """Attack until the time is over; return the promises that were broken."""
    broken: list[str] = []
    chance = random.Random(seed)
    with scene(ROOT) as made:
        before, end = made.gauge.newest.own, time.monotonic() + 60 * minutes
        streams: list[Iterator[Attack]] = []
        while time.monotonic() < end:
            streams = streams or streams_of(made.server, chance.randrange(1 << 30), only)
            attack = next(stream := chance.choice(streams), None)
            if attack is None:
                streams.remove(stream)
                continue
            print(f"{attack.name:60}", end="", flush=True)
            row = made.measure(attack.send, 0.1)
            print(row, flush=True)
            if row.wait_s > _MAX_WAIT_S + made.calm_s:
                broken.append(f"others waited {row.wait_s:.2f} s: {attack.name}")
            if any(text in row.answer.text for text in _FAULTS):
                broken.append(f"{row.answer.text}: {attack.name}")
        time.sleep(_CALM_S)
        after = made.gauge.newest.own
        print(f"MiB by role, before: {before}\nat the end: {after}")
        for role in before:
            if role != "stub" and after[role] > before[role] + _MAX_KEPT_MIB:
                broken.append(f"{role} has {after[role]} MiB at the end, {before[role]} before")
        if made.pids != made.server.pids():
            broken.append("the processes are not the same")
        broken += [
            f"{each.wrong} wrong answers to {each.name}" for each in made.waits if each.wrong
        ]
        log = made.server.log_text()
        broken += [f"in the log: {text}" for text in (*errors_of(log), *long_turns(log))[:5]]
        for each in made.waits:
            each.end()
        if made.server.stop(60):
            broken.append("the server does not end in order")
    return broken


def main() -> int:
    arguments = parse_options(
        seed=(0, "of the choices; 0 draws one"),
        minutes=(0.0, "of attacks that are judged; 0: all of them, in a table"),
        only=("", "attacks with this in their name"),
        tree=([], "root of another tree, for a second table"),
    )
    seed = arguments.seed or random.SystemRandom().randrange(1, 1 << 30)
    print(f"seed {seed}", flush=True)
    if arguments.minutes:
        broken = judge(seed, arguments.minutes, arguments.only)
    else:
        broken = compare([ROOT, *map(Path, arguments.tree)], seed, arguments.only)
    print("\n".join(broken) or "every promise was kept", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
