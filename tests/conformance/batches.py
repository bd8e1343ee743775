"""Plays arrivals to a server, and says which batches came of them.

For test_tables.py, and for tests/bench/batches.py, which plays them to real Triton too. All
configurations are played at the same time: each has models of its own.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.conformance.arrivals import Answered, Ask, Begun, Configuration, Go, Pause, Send, inputs
from tests.conformance.configurations import CONFIGURATIONS
from tests.conformance.repositories import MODELS
from tests.support.server import Server, is_open
from tests.support.waiting import eventually

RECORDED = Path(__file__).resolve().parent / "recorded_batches.json"
LIMIT_S = 60.0
#: A model that is always free: on a stream, its answer comes when all before are queued.
FREE = "free"
Result = dict[str, Any]


def write_repository(
    directory: Path, scratch: Path, configurations: Sequence[Configuration]
) -> None:
    # Decoupled: others are answered in the order of their stream.
    free = f"max_batch_size: 0\n{inputs()}model_transaction_policy {{ decoupled: true }}\n"
    models = [(FREE, free), *(model for each in configurations for model in each.models)]
    for name, config in models:
        target = directory / name
        if "ensemble_scheduling" in config:
            (target / "1").mkdir(parents=True)
        else:
            shutil.copytree(MODELS / "witness", target)
            config = f'backend: "python"\n{config}'
            place = json.dumps(str(scratch))
            config += f'parameters {{ key: "SCRATCH" value {{ string_value: {place} }} }}\n'
        (target / "config.pbtxt").write_text(config, encoding="utf-8")


class Place:
    """A server: where it listens, where its models write, and how to tell that requests wait."""

    def __init__(self, http_port: int, grpc_port: int, scratch: Path, settle_s: float) -> None:
        self.url = f"http://127.0.0.1:{http_port}"
        self.grpc_address = f"127.0.0.1:{grpc_port}"
        self.scratch = scratch
        self.settle_s = settle_s

    def statistics(self, model: str) -> Result:
        with urllib.request.urlopen(f"{self.url}/v2/models/{model}/stats", timeout=LIMIT_S) as got:
            [statistics] = json.load(got)["model_stats"]
        sizes = {
            str(row["batch_size"]): row["compute_infer"]["count"]
            for row in statistics["batch_stats"]
        }
        return {
            "batches": sizes,
            "executions": statistics["execution_count"],
            "inferences": statistics["inference_count"],
        }

    def seen(self, model: str) -> list[str]:
        """Return what a model has written down: a line for each batch that it began."""
        journal = self.scratch / model
        return journal.read_text("utf-8").splitlines() if journal.exists() else []


class Stream:
    """Requests in order on one gRPC stream, and what came back."""

    def __init__(self, stub: Any, answers: list[str], changed: threading.Condition) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = stub.ModelStreamInfer(iter(self._requests.get, None))
        self._answers = answers
        self._changed = changed
        self._free = 0
        self._ended = threading.Thread(target=self._read, daemon=True)
        self._ended.start()

    def _read(self) -> None:
        try:
            for answer in self._call:
                with self._changed:
                    is_free = answer.infer_response.model_name == FREE
                    self._free += is_free
                    if not is_free:
                        self._answers.append(answer.error_message or "")
                    self._changed.notify_all()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                with self._changed:
                    self._answers.append(f"the stream ended: {error.details()}")

    def send(self, ask: Ask, model: str, *, has_rows: bool) -> None:
        self._requests.put(_request(ask, ask.model or model, has_rows=has_rows))

    def queued(self) -> None:
        """Waits until the server has seen all that was sent on this stream."""
        with self._changed:
            expected = self._free + 1
        self._requests.put(_request(Ask("barrier"), FREE, has_rows=False))
        with self._changed:
            assert self._changed.wait_for(lambda: self._free >= expected, LIMIT_S), "not queued"

    def close(self) -> None:
        self._requests.put(None)
        self._ended.join(LIMIT_S)
        self._call.cancel()


def _request(ask: Ask, model: str, *, has_rows: bool) -> Any:
    request = service_pb2.ModelInferRequest(model_name=model, id=ask.name)
    shape = [ask.rows, ask.columns] if has_rows else [ask.columns]
    for name, dims in [("IN", shape)] + [("OPTION", [ask.rows, 1])] * ask.has_option:
        count = 1
        for dim in dims:
            count *= dim
        request.inputs.add(name=name, datatype="INT32", shape=dims)
        request.raw_input_contents.append(b"\x01\0\0\0" * count)
    if ask.priority:
        request.parameters["priority"].uint64_param = ask.priority
    if ask.sequence:
        request.parameters["sequence_id"].int64_param = ask.sequence
        request.parameters["sequence_start"].bool_param = ask.is_first
        request.parameters["sequence_end"].bool_param = ask.is_last
    return request


class Play:
    """One configuration, against one server."""

    def __init__(self, place: Place, configuration: Configuration) -> None:
        self._place = place
        self._configuration = configuration
        self._sent = 0
        self._answers: list[str] = []
        self._changed = threading.Condition()
        self._has_rows = "max_batch_size: 0" not in configuration.config
        self._streams: list[Stream] = []
        self._answered_then: list[int] = []
        self._does: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Begun: self._begun,
            Answered: lambda step: self._answered(step.number),
            Go: self._go,
            Pause: lambda step: time.sleep(step.seconds),
        }

    def run(self) -> Result:
        with grpc.insecure_channel(self._place.grpc_address) as channel:
            self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            try:
                for step in self._configuration.steps:
                    self._does[type(step)](step)
                self._answered(self._sent)
            finally:
                self._let_all_go()
                for stream in self._streams:
                    stream.close()
        result: Result = {"answered_before": self._answered_then}
        result["errors"] = sorted(text for text in self._answers if text)
        for name, _ in self._configuration.models:
            result[name] = {**self._place.statistics(name), "seen": self._place.seen(name)}
        return result

    def _send(self, step: Send) -> None:
        for number, ask in enumerate(step.asks):
            if not self._streams or self._configuration.has_streams:
                self._streams.append(Stream(self._stub, self._answers, self._changed))
            self._streams[-1].send(ask, self._configuration.name, has_rows=self._has_rows)
            self._sent += 1
            if self._configuration.has_streams or number + 1 == len(step.asks):
                self._settle()

    def _settle(self) -> None:
        self._streams[-1].queued()
        time.sleep(self._place.settle_s)

    def _begun(self, step: Begun) -> None:
        model = step.model or self._configuration.name
        eventually(
            lambda: len(self._place.seen(model)) >= step.batches, LIMIT_S, f"{model} has begun"
        )

    def _answered(self, number: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._answers) >= number, LIMIT_S):
                raise TimeoutError(f"{len(self._answers)} of {number} are answered")

    def _go(self, step: Go) -> None:
        if self._configuration.has_streams:
            with self._changed:
                self._answered_then.append(len(self._answers))
        self._let_go(step)

    def _let_go(self, step: Go) -> None:
        model = step.model or self._configuration.name
        (self._place.scratch / f"{model}.{step.name}").touch()

    def _let_all_go(self) -> None:
        for step in self._configuration.steps:
            if isinstance(step, Go):
                self._let_go(step)


def play_all(place: Place, configurations: Sequence[Configuration]) -> dict[str, Result]:
    """All at the same time: each has models of its own."""
    results: dict[str, Result] = {}

    def play(configuration: Configuration) -> None:
        try:
            results[configuration.name] = Play(place, configuration).run()
        except (AssertionError, TimeoutError, OSError, grpc.RpcError) as error:
            results[configuration.name] = {"failed": str(error)}

    threads = [threading.Thread(target=play, args=(each,)) for each in configurations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {each.name: results[each.name] for each in configurations}


def play_ours(directory: Path, configurations: Sequence[Configuration]) -> dict[str, Result]:
    server = Server(directory / "server", frontends=("grpc",))
    write_repository(server.repository, server.scratch, configurations)
    with server:
        # Its process may listen a moment later than that of HTTP.
        eventually(lambda: is_open(server.grpc_port), LIMIT_S, "gRPC listens")
        place = Place(server.http_port, server.grpc_port, server.scratch, 0)
        return play_all(place, configurations)


def recorded() -> dict[str, Any]:
    """Return Triton's recorded batches, and ours for the cases that differ on purpose."""
    return dict(json.loads(RECORDED.read_text("utf-8")))


def keep(triton: dict[str, Result], ours: dict[str, Result]) -> None:
    """Keep both answers; docs/recorded-differences.md has to justify those that differ."""
    kept = recorded() if RECORDED.exists() else {}
    for name, result in triton.items():
        if "failed" in result:
            continue
        entry = kept.setdefault(name, {"triton": []})
        if result not in entry["triton"]:
            entry["triton"].append(result)
        entry.pop("ours", None)
        if ours[name] not in entry["triton"]:
            entry["ours"] = ours[name]
    ordered = {each.name: kept[each.name] for each in CONFIGURATIONS if each.name in kept}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in ordered.items())
    RECORDED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
