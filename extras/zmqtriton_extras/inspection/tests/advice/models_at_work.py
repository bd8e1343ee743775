"""Twenty models that are slow, stand still or fail, each by one fault in the model or its use.

They were written before what explain and profile say of them. Each says by which words, or by which
line of code, its cause is named.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.standard.tools.advice.model_faults import ANSWERS, BATCHING, CONFIG, parameter
from tests.standard.tools.advice.world import BATCH, BODY, World, code_of
from tests.standard.tools.system import broken_models as broken

#: Use of a model, from its begin to its end.
Use = Callable[[World], Iterator[None]]
#: Ends the line of code that is the cause.
MARK = "# the cause"


class AtWork(NamedTuple):
    config: str
    code: str
    use: Use
    #: Words of which one must be said; by explain, or by profile of the line that is marked.
    named: tuple[str, ...] = ()
    #: What nobody may read of this model.
    untrue: tuple[str, ...] = ()
    #: Why its cause is not named.
    missed: str = ""
    #: Other models that it needs: configuration and code.
    others: Mapping[str, tuple[str, str | None]] = {}
    #: Files beside its code.
    files: Mapping[str, str] = {}

    def place(self) -> str:
        """The line of the model's code that is the cause, as findings have it; "" if it is none."""
        for file, text in (*self.files.items(), ("model.py", self.code)):
            for number, line in enumerate(text.splitlines(), 1):
                if line.endswith(MARK):
                    return f"{file}, line {number}"
        return ""


def clients(count: int, body: object = BODY, path: str = "infer") -> Use:
    """Return the use by clients that ask again as soon as they have an answer."""

    def use(world: World) -> Iterator[None]:
        ends = threading.Event()

        def ask() -> None:
            while not ends.is_set():
                data = json.dumps(body).encode()
                world.server.exchange(f"/v2/models/{world.name}/{path}", data)

        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ends.set()
            for thread in threads:
                thread.join()

    return use


_FLAT = {"IN": [1.0]}


def left_alone(body: object = BODY, path: str = "infer") -> Use:
    """Return the use by a client that awaits an answer for as long as it takes, and then leaves."""

    def use(world: World) -> Iterator[None]:
        with _sent(world, f"/v2/models/{world.name}/{path}", body):
            yield

    return use


@contextmanager
def _sent(world: World, path: str, body: object) -> Iterator[None]:
    """Send a request and read nothing of its answer."""
    host, port = world.server.url.rpartition("/")[2].split(":")
    data = json.dumps(body).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall(head.encode() + data)
        yield


def _sequence(number: int, **flags: bool) -> dict[str, object]:
    return {**BATCH, "parameters": {"sequence_id": number, **flags}}


def keeps_a_slot(world: World) -> Iterator[None]:
    """Begin a sequence and leave it open; others wait."""
    assert 200 == world.ask(body=_sequence(1, sequence_start=True))
    waiting = _sequence(2, sequence_start=True, sequence_end=True)
    with _sent(world, f"/v2/models/{world.name}/infer", waiting):
        yield


def of_two_shapes(world: World) -> Iterator[None]:
    """Send rows of two lengths at the same time."""
    bodies = [
        {"inputs": [{"name": "IN", "shape": [1, n], "datatype": "FP32", "data": [1.0] * n}]}
        for n in (1, 3)
    ]
    with ExitStack() as stack:
        for body in bodies * 3:
            stack.enter_context(contextmanager(clients(1, body))(world))
        yield


def asks_a_silent_host(world: World) -> Iterator[None]:
    """Have the model ask a host that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32", "data": [port]}]}
        with _sent(world, f"/v2/models/{world.name}/infer", body):
            yield


def sleeping(seconds: float) -> str:
    return code_of(broken.executing(f"time.sleep({seconds})"))


def chain(*models: str) -> str:
    """Return the configuration of an ensemble of these steps, one after the other."""
    names = ["IN", *(f"T{number}" for number in range(1, len(models))), "OUT"]
    steps = ", ".join(
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{before}" }} '
        f'output_map {{ key: "OUT" value: "{after}" }} }}'
        for model, before, after in zip(models, names, names[1:], strict=False)
    )
    return f'platform: "ensemble"\n{broken.TENSORS}ensemble_scheduling {{ step [{steps}] }}\n'


def count_of_instances(count: int) -> str:
    return f"instance_group [{{ count: {count} kind: KIND_CPU }}]\n"


_DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }\n"
_RAGGED_LENGTHS = BATCHING.replace(
    '"IN" data_type: TYPE_FP32 dims: [1]', '"IN" data_type: TYPE_FP32 dims: [-1]'
)
_ONE = "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, np.float32))])"
_FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
_BY_A_THREAD = f"""\
    def initialize(self, args):
        import queue
        import threading
        self.waiting = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            sender = self.waiting.get()
            time.sleep(0.3)  {MARK}
            sender.send({_ONE}, flags={_FINAL})

    def execute(self, requests):
        for request in requests:
            self.waiting.put(request.get_response_sender())
"""
_IN_EXECUTE = f"""\
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(10):
                time.sleep(0.05)  {MARK}
                sender.send({_ONE})
            sender.send(flags={_FINAL})
"""
_UNREAD = f"""\
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            while not request.is_cancelled():
                sender.send(pb_utils.InferenceResponse(
                    [pb_utils.Tensor('OUT', np.ones(100000, np.float32))]))
            sender.send(flags={_FINAL})
"""
_NEVER_ENDS = f"""\
    def initialize(self, args):
        self.senders = []

    def execute(self, requests):
        for request in requests:
            self.senders.append(request.get_response_sender())
            self.senders[-1].send({_ONE})
"""
_BATCHES = "    def execute(self, requests):\n        time.sleep(0.05)\n" + ANSWERS
_TORCH = """\
import time

def synchronize():
    time.sleep(0.3)
"""
_ON_A_GPU = f"""\
    def execute(self, requests):
        sys.path.insert(0, os.path.dirname(__file__) + '/site-packages')
        import torch.cuda
        torch.cuda.synchronize()  {MARK}
        {broken.ANSWER}
"""
_LOCKED = f"""\
    def execute(self, requests):
        with LOCK:
            time.sleep(0.3)  {MARK}
        {broken.ANSWER}
"""
_READS = f"""\
    def initialize(self, args):
        import json
        self.path = os.path.join(os.path.dirname(__file__), 'words.json')
        with open(self.path, 'w') as file:
            json.dump([str(number) for number in range(1000000)], file)

    def execute(self, requests):
        import json
        words = json.load(open(self.path))  {MARK}
        {broken.ANSWER}
"""
_SEARCHES = f"""\
    def initialize(self, args):
        self.seen = [str(number) for number in range(3000000)]

    def execute(self, requests):
        is_known = 'x' in self.seen  {MARK}
        {broken.ANSWER}
"""
_BLOCKS = f"""\
    async def execute(self, requests):
        time.sleep(0.3)  {MARK}
        {broken.ANSWER}
"""
_ASKS_A_HOST = f"""\
    def execute(self, requests):
        from urllib.request import urlopen
        port = int(pb_utils.get_input_tensor_by_name(requests[0], 'IN').as_numpy()[0])
        urlopen('http://127.0.0.1:%d/' % port)  {MARK}
        {broken.ANSWER}
"""
_HELPED = f"""\
    def execute(self, requests):
        sys.path.insert(0, os.path.dirname(__file__))
        from helper import scaled
        scaled(np.ones(3))
        {broken.ANSWER}
"""
_HELPER = f"""\
import numpy as np


def scaled(values):
    return np.concatenate([values, np.ones((2, 2))])  {MARK}
"""

AT_WORK: dict[str, AtWork] = {
    "chain_uneven": AtWork(
        chain("uneven_first", "uneven_second", "uneven_last"),
        "",
        clients(1),
        named=("its slowest step is 'uneven_second'",),
        untrue=("scale chain_uneven",),
        others={
            "uneven_first": (CONFIG, sleeping(0.01)),
            "uneven_second": (CONFIG, sleeping(0.2)),
            "uneven_last": (CONFIG, sleeping(0.01)),
        },
    ),
    "chain_of_chains": AtWork(
        chain("inner_chain"),
        "",
        clients(4),
        named=("'inner_slow'",),
        untrue=("scale chain_of_chains", "scale inner_chain"),
        others={
            "inner_slow": (CONFIG, sleeping(0.2)),
            "inner_chain": (chain("inner_slow"), None),
        },
    ),
    "chain_of_a_caller": AtWork(
        chain("step_that_calls"),
        "",
        clients(4),
        named=("'called_by_a_step'",),
        untrue=("scale chain_of_a_caller",),
        others={
            "called_by_a_step": (CONFIG, sleeping(0.2)),
            "step_that_calls": (CONFIG, code_of(broken.calling("called_by_a_step"))),
        },
    ),
    "streams_by_a_thread": AtWork(
        _DECOUPLED,
        code_of(_BY_A_THREAD),
        clients(6, _FLAT, "generate_stream"),
        untrue=("wait for an instance", "scale streams_by_a_thread"),
    ),
    "streams_in_execute": AtWork(
        _DECOUPLED,
        code_of(_IN_EXECUTE),
        clients(4, _FLAT, "generate_stream"),
        named=("it streams in execute()",),
    ),
    "stream_unread": AtWork(
        _DECOUPLED.replace(
            '"OUT" data_type: TYPE_FP32 dims: [1]', '"OUT" data_type: TYPE_FP32 dims: [-1]'
        ),
        code_of(_UNREAD),
        left_alone(_FLAT, "generate_stream"),
        named=("does not read",),
        untrue=("hangs", "scale stream_unread"),
    ),
    "stream_never_ends": AtWork(
        _DECOUPLED,
        code_of(_NEVER_ENDS),
        left_alone(_FLAT, "generate_stream"),
        named=("TRITONSERVER_RESPONSE_COMPLETE_FINAL",),
        untrue=("scale stream_never_ends",),
    ),
    "sequences_of_the_oldest": AtWork(
        "max_batch_size: 1\n" + CONFIG + "sequence_batching { max_sequence_idle_microseconds: "
        "600000000 oldest { max_candidate_sequences: 1 } }\n",
        code_of("    def execute(self, requests):\n" + ANSWERS),
        keeps_a_slot,
        named=("sequences in progress have all slots",),
        untrue=("hangs",),
    ),
    "batches_of_one": AtWork(
        BATCHING,
        code_of(_BATCHES),
        clients(8, BATCH),
        named=("dynamic_batching",),
    ),
    "batches_of_two_shapes": AtWork(
        _RAGGED_LENGTHS + "dynamic_batching { }\n",
        code_of(_BATCHES),
        of_two_shapes,
        named=("another shape of 'IN'",),
    ),
    "batches_in_vain": AtWork(
        BATCHING + "dynamic_batching { max_queue_delay_microseconds: 100000 }\n",
        code_of("    def execute(self, requests):\n" + ANSWERS),
        clients(1, BATCH),
        named=("for others in their batch", "clients send too few at the same time"),
        untrue=("scale batches_in_vain",),
    ),
    "calls_an_idle_model": AtWork(
        CONFIG,
        code_of(broken.calling("idle_engine")),
        clients(4),
        named=("its one instance waits for 'idle_engine'",),
        untrue=("scale idle_engine",),
        others={"idle_engine": (CONFIG + count_of_instances(4), sleeping(0.2))},
    ),
    "waits_for_a_gpu": AtWork(
        CONFIG,
        code_of(_ON_A_GPU),
        clients(3),
        named=("waits for its GPU",),
        untrue=("torch/cuda",),
        files={
            "site-packages/torch/__init__.py": "",
            "site-packages/torch/cuda.py": _TORCH,
        },
    ),
    "instances_share_a_lock": AtWork(
        CONFIG + count_of_instances(3) + parameter("INSTANCES", "threads"),
        code_of(_LOCKED, "import threading\nLOCK = threading.Lock()\n"),
        clients(6),
    ),
    "reads_each_time": AtWork(CONFIG, code_of(_READS), clients(2), untrue=("decoder.py",)),
    "searches_a_list": AtWork(
        CONFIG,
        code_of(_SEARCHES),
        clients(2),
        missed="CPython tells of a long operator at the next call, which is on the line behind",
    ),
    "blocks_its_loop": AtWork(
        CONFIG + parameter("MAX_INFLIGHT", "8"), code_of(_BLOCKS), clients(4)
    ),
    "asks_a_silent_host": AtWork(
        CONFIG,
        code_of(_ASKS_A_HOST),
        asks_a_silent_host,
        untrue=("socket.py", "client.py"),
    ),
    "fails_in_a_helper": AtWork(
        CONFIG,
        code_of(_HELPED),
        clients(1),
        untrue=("multiarray", "__array_function__"),
        files={"helper.py": _HELPER},
    ),
    "fails_in_a_callee": AtWork(
        CONFIG,
        code_of(broken.calling("failing_engine")),
        clients(1),
        named=("'failing_engine'",),
        others={"failing_engine": (CONFIG, code_of(broken.executing("raise KeyError('column')")))},
    ),
}
