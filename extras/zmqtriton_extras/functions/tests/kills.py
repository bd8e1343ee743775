"""Kills of the broker under streams of large pieces, of each kind of model.

Each stream ends once: with all of its pieces, in their order, or with an error, soon after its last
piece. A stream behind it that waits for room is served.

    python -m zmqtriton_extras.functions.tests.kills --kills 40

Prints for each kind of model and size of a piece how many streams were whole, how many ended with
an error, and the longest time without a word from a stream. Exits with 1 if a stream was wrong.
"""

from __future__ import annotations

import itertools
import queue
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc as grpc_client

from tests.support.server import Server
from tests.support.tools import parse_options
from tests.support.waiting import eventually

KIB = 1 << 10
SIZES = (64 * KIB, 300 * KIB, 1 << 20, 4 << 20)
PIECES = 12
#: Time without a word after which a stream counts as one that never ends: several times the gap's,
#: for a busy machine.
SILENCE_S = 30.0

_FUNCTION = """
import numpy as np
from typing import Iterator, List, Optional
from zmqtriton import Array, End, model
"""
_GENERATOR = """
@model
def generator(size: int, pieces: int) -> Iterator[Array["UINT8", -1]]:
    for number in range(pieces):
        yield np.full(size, number, np.uint8)
"""
_STEPS = """
@model(streams=8, budget=2)
class Steps:
    def cost(self, size: int, pieces: int) -> int:
        return 1

    def admit(self, size: int, pieces: int) -> list:
        return [size, pieces, 0]

    def step(self, states: list) -> List[Optional[Array["UINT8", -1]]]:
        return [self.next(state) for state in states]

    def next(self, state):
        size, pieces, number = state
        state[2] += 1
        piece = np.full(size, number, np.uint8)
        return End(piece) if number + 1 == pieces else piece
"""
_CLASS = """
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            {pieces}
                if sender.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("output", piece)]))
            sender.send(flags=FINAL)
"""
_OWN_PIECES = """size, pieces = [
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0])
                for name in ("size", "pieces")
            ]
            for piece in [np.full(size, number, np.uint8) for number in range(pieces)]:"""
#: Of another model's stream; its error is this stream's.
_READ_PIECES = """call = pb_utils.InferenceRequest(
                model_name="decoupled",
                inputs=request.inputs(),
                requested_output_names=["output"],
            )
            for answer in call.exec(decoupled=True):
                if answer.has_error():
                    sender.send(pb_utils.InferenceResponse(error=answer.error()))
                    break
                if not answer.output_tensors():
                    continue
                piece = answer.output_tensors()[0].as_numpy()"""
_CONFIG = """
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [
  { name: "size" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "pieces" data_type: TYPE_INT64 dims: [ 1 ] }
]
output [ { name: "output" data_type: TYPE_UINT8 dims: [ -1 ] } ]
"""
_ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling {
  step [ {
    model_name: "decoupled"
    model_version: -1
    input_map { key: "size" value: "size" }
    input_map { key: "pieces" value: "pieces" }
    output_map { key: "output" value: "output" }
  } ]
}
"""
#: Configuration and code of a model of each kind.
KINDS = {
    "generator": ("", _FUNCTION + _GENERATOR),
    "steps": ("", _FUNCTION + _STEPS),
    "decoupled": (_CONFIG, _CLASS.format(pieces=_OWN_PIECES)),
    "asking": (_CONFIG, _CLASS.format(pieces=_READ_PIECES)),
    "joined": (_CONFIG + _ENSEMBLE, ""),
}


class Ending(NamedTuple):
    """What a client has got of a stream."""

    kind: str
    size: int
    #: The numbers of its pieces.
    numbers: list[int]
    #: "" if all of it has come.
    error: str
    #: The longest time without a word.
    silence_s: float

    @property
    def fault(self) -> str:
        """What is wrong with the stream; "" for nothing."""
        if self.silence_s >= SILENCE_S:
            return "it never ended"
        if self.numbers != [*range(len(self.numbers))]:
            return "its pieces are not in order"
        if not self.error and len(self.numbers) != PIECES:
            return "it was cut without a word"
        return "the client is blamed" if "did not keep up" in self.error else ""


def read_stream(client: Any, kind: str, size: int) -> Ending:
    """Ask for a stream, and read it to its end; or to where it has been silent for too long."""
    answers: queue.Queue[Any] = queue.Queue()
    numbers, failure, is_over, silence_s = list[int](), "", False, 0.0
    arrays = {"size": size, "pieces": PIECES}
    inputs = [
        grpc_client.InferInput(name, [1], "INT64").set_data_from_numpy(np.array([n], np.int64))
        for name, n in arrays.items()
    ]
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(kind, inputs, enable_empty_final_response=True)
    while not (is_over or failure or silence_s >= SILENCE_S):
        begun_s = time.monotonic()
        try:
            result, error = answers.get(timeout=SILENCE_S)
        except queue.Empty:
            result, error = None, None
        silence_s = max(silence_s, time.monotonic() - begun_s)
        if error is not None:
            failure = error.message()
        elif result is not None:
            response, array = result.get_response(), result.as_numpy("output")
            if array is not None:
                is_right = array.size == size and array[0] == array[-1] == array.max()
                numbers.append(int(array[0]) if is_right else -1)
            is_over = response.parameters["triton_final_response"].bool_param
    client.stop_stream(cancel_requests=True)
    return Ending(kind, size, numbers, failure, silence_s)


class Clients:
    """Clients that read one stream after the other until they are told to stop."""

    def __init__(
        self, server: Server, kinds: Sequence[str], sizes: Sequence[int], each: int
    ) -> None:
        """Set up `each` clients of each kind of model, with pieces of each size in turn."""
        self.endings: list[Ending] = []
        self._server, self._sizes = server, sizes
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(kind, number))
            for kind in kinds
            for number in range(each)
        ]

    def _read(self, kind: str, number: int) -> None:
        sizes = itertools.cycle([*self._sizes[number:], *self._sizes[:number]])
        with grpc_client.InferenceServerClient(self._server.grpc_address) as client:
            while not self._is_over.is_set():
                self.endings.append(read_stream(client, kind, next(sizes)))

    @contextmanager
    def reading(self) -> Iterator[list[Ending]]:
        """Let them read meanwhile; afterwards each has ended its last stream."""
        for thread in self._threads:
            thread.start()
        try:
            yield self.endings
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join()


@contextmanager
def serving(kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Server]:
    """Run a server with a model of each kind, and those that they call."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s", frontends=("grpc",))
        for kind in {*kinds, "decoupled"}:
            server.write_model(kind, *KINDS[kind])
        with server:
            yield server


def read_under_kills(
    server: Server,
    kinds: Sequence[str] = tuple(KINDS),
    sizes: Sequence[int] = SIZES,
    *,
    kills: int,
    clients: int = 1,
    pause_s: float = 1.5,
) -> tuple[list[Ending], list[str]]:
    """Read streams while the broker is killed as often; return their ends, and what was wrong.

    Afterwards a stream of each kind of model is read, which must be whole.
    """
    readers = Clients(server, kinds, sizes, clients)
    with readers.reading() as endings:
        for _ in range(kills):
            count = len(endings)
            eventually(lambda: len(endings) > count, 3 * SILENCE_S, "an end")  # noqa: B023
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # anywhere within streams
            server.kill_only("broker")
            eventually(server.is_ready, 60, "the next broker")
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        afterwards = [read_stream(client, kind, sizes[0]) for kind in kinds]
    wrong = [f"{each}: {each.fault}" for each in (*endings, *afterwards) if each.fault]
    wrong += [f"{each}: it is not whole, without a kill" for each in afterwards if each.error]
    return endings, wrong


def row_of(kind: str, size: int, endings: Sequence[Ending]) -> str:
    """Return the line of the table for these streams."""
    never = sum(each.silence_s >= SILENCE_S for each in endings)
    errors = sum(bool(each.error) for each in endings)
    longest_s = max((each.silence_s for each in endings), default=0.0)
    return (
        f"{kind:10} {size // KIB:5} KiB  whole {len(endings) - errors - never:4}  errors "
        f"{errors:3}  without an end {never:3}  longest silence {longest_s:5.1f} s"
    )


def main() -> int:
    """Run the tool; return 1 if a stream was wrong."""
    options = parse_options(
        __doc__,
        kills=(40, "number of kills of the broker"),
        pause=(1.5, "mean seconds between two kills"),
        clients=(2, "clients of each kind of model"),
        kinds=([], f"of {', '.join(KINDS)}; all without"),
        sizes=([], "bytes of a piece; without 64 KiB to 4 MiB"),
    )
    kinds = options.kinds or [*KINDS]
    sizes = [int(size) for size in options.sizes] or SIZES
    with serving(kinds) as server:
        endings, wrong = read_under_kills(
            server,
            kinds,
            sizes,
            kills=options.kills,
            clients=options.clients,
            pause_s=options.pause,
        )
    lines = [
        row_of(kind, size, [each for each in endings if (each.kind, each.size) == (kind, size)])
        for kind, size in itertools.product(kinds, sizes)
    ]
    errors = Counter(each.error for each in endings if each.error)
    lines += [f"{count:3} times: {error}" for error, count in errors.items()]
    sys.stdout.write("\n".join([*lines, *wrong]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
