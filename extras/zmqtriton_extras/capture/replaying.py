"""Sends captured requests to a `Server` again and compares the answers."""

from __future__ import annotations

import itertools
import math
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from zmqtriton.sdk.wire import InvalidArgument, ZmqTritonError, errors
from zmqtriton_extras.capture.comparison import DIFFERENT, Difference, compare
from zmqtriton_extras.capture.records import Record

FAILED, SKIPPED = "failed", "left out"
#: Requests under way at a time, if the replay keeps their times.
_MAX_UNDER_WAY = 64
_MAX_SHOWN = 10


class Model(Protocol):
    def infer(self, *, inputs: Mapping[str, Any], **options: Any) -> Iterator[Any]: ...


class Server(Protocol):
    def model(self, name: str, version: str = "") -> Model: ...


class Plan(NamedTuple):
    """The user's choices for a replay."""

    #: The model and version that are asked in place of those of the record; "" for the same.
    model: str = ""
    version: str = ""
    tolerance: float = 0.0
    #: Speed as a multiple of that of the capture; 0 sends as fast as responses come.
    speed: float = 0.0
    clients: int = 4


class Result(NamedTuple):
    id: str
    model: str
    kind: str
    differences: list[Difference]
    #: Milliseconds now, and as captured.
    now_ms: float = math.nan
    before_ms: float = math.nan


class Report:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Differences by model and tensor: their number, the greatest, its text and record.
        self.worst: dict[tuple[str, str], tuple[int, float, str, str]] = {}
        #: The first ones that differ, and the first ones that fail.
        self.shown: list[Result] = []
        self._times: list[tuple[float, float]] = []

    @property
    def has_passed(self) -> bool:
        return not (self.counts[DIFFERENT] or self.counts[FAILED])

    def add(self, result: Result) -> None:
        self.counts[result.kind] += 1
        if not math.isnan(result.now_ms):
            self._times.append((result.now_ms, result.before_ms))
        of_kind = sum(other.kind == result.kind for other in self.shown)
        if result.kind in (DIFFERENT, FAILED) and of_kind < _MAX_SHOWN:
            self.shown.append(result)
        for tensor, text, greatest in result.differences if result.kind == DIFFERENT else ():
            key = result.model, tensor
            count, worst, of_worst, id_of_worst = self.worst.get(key, (0, -1.0, "", ""))
            if greatest > worst:
                worst, of_worst, id_of_worst = greatest, text, result.id
            self.worst[key] = count + 1, worst, of_worst, id_of_worst

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return p50 and p99 in milliseconds, now and as captured."""
        if not self._times:
            return {}
        now, before = zip(*self._times, strict=True)
        return {"now": _percentiles(now), "captured": _percentiles(before)}


def replay(server: Server, records: Iterable[Record], plan: Plan) -> Report:
    """Send the records in their order; requests of a sequence wait for each other."""
    report = Report()
    sequences: dict[str, Future[Result]] = {}
    own_ids: dict[str, int | str] = {}
    under_way: list[Future[Result]] = []
    begun_s, first_s = time.monotonic(), math.nan
    count = _MAX_UNDER_WAY if plan.speed else plan.clients
    with ThreadPoolExecutor(count, thread_name_prefix="replay") as pool:
        for record in records:
            parameters = record.document["request"].get("parameters", {})
            sequence = parameters.get("sequence_id", 0)
            key = _key(record, sequence) if sequence else ""
            before = sequences.get(key)
            if sequence:
                if parameters.get("sequence_start") or key not in own_ids:
                    own_ids[key] = _new_id(sequence)
                sequence = own_ids[key]
            if plan.speed:
                moment_s = _moment(record)
                first_s = moment_s if math.isnan(first_s) else first_s
                due_s = begun_s + (moment_s - first_s) / plan.speed
                time.sleep(max(0.0, due_s - time.monotonic()))
            while len(under_way) >= count:
                done = next((one for one in under_way if one.done()), under_way[0])
                under_way.remove(done)
                report.add(done.result())
            future = pool.submit(_send, server, record, plan, sequence, before)
            under_way.append(future)
            if sequence:
                sequences[key] = future
        for future in under_way:
            report.add(future.result())
    return report


def _send(
    server: Server,
    record: Record,
    plan: Plan,
    sequence: int | str,
    before: Future[Result] | None,
) -> Result:
    if before is not None:
        before.exception()  # it was sent before this one, so it has its thread
    document, model = record.document, plan.model or record.model
    captured_ms = float(document["duration_ms"])
    error = document["error"]
    if error is not None and error["code"] == errors.Cancelled.code:
        return Result(record.id, model, SKIPPED, [Difference("", "its client had left")])
    request = document["request"]
    try:
        inputs = {entry["name"]: record.array(entry) for entry in request["inputs"]}
    except InvalidArgument as problem:
        return Result(record.id, model, SKIPPED, [Difference("", problem.text)])
    parameters = dict(request.get("parameters", {}))
    options = {
        "request_id": request.get("id", ""),
        "outputs": [output["name"] for output in request.get("outputs", ())],
        "priority": parameters.pop("priority", 0),
        "timeout": parameters.pop("timeout", 0),
        "correlation_id": sequence,
        "sequence_start": parameters.pop("sequence_start", False),
        "sequence_end": parameters.pop("sequence_end", False),
    }
    parameters.pop("sequence_id", None)
    begun_s = time.perf_counter()
    try:
        responses = [
            *server.model(model, plan.version).infer(
                inputs=inputs, parameters=parameters, **options
            )
        ]
    except ZmqTritonError as refused:
        return _judge_error(record, model, refused)
    now_ms = (time.perf_counter() - begun_s) * 1000
    if error is not None:
        text = f"succeeds now; captured was {error['code']}: {error['text']}"
        return Result(record.id, model, DIFFERENT, [Difference("", text)])
    outputs = [response.outputs for response in responses if response.outputs]
    kind, differences = compare(record, outputs, plan.tolerance)
    return Result(record.id, model, kind, differences, now_ms, captured_ms)


def _judge_error(record: Record, model: str, refused: ZmqTritonError) -> Result:
    error = record.document["error"]
    if error is not None and error["code"] == refused.code:
        return Result(record.id, model, "equal", [])
    return Result(record.id, model, FAILED, [Difference("", f"{refused.code}: {refused.text}")])


def _key(record: Record, sequence: int | str) -> str:
    return f"{record.model}/{sequence!r}"


def _new_id(sequence: int | str) -> int | str:
    """Return a sequence id that no client of the server uses."""
    if isinstance(sequence, str):
        return f"replay-{secrets.token_hex(12)}"
    return secrets.randbits(62) | 1


def _moment(record: Record) -> float:
    return datetime.fromisoformat(record.document["time"].replace("Z", "+00:00")).timestamp()


def _percentiles(times: Iterable[float]) -> dict[str, float]:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.99) - 1)]
    return {"p50_ms": round(statistics.median(ordered), 3), "p99_ms": round(p99, 3)}


def in_order_of_time(records: Iterable[Record]) -> list[Record]:
    """Return the records in the order of their arrival; they are written when they end."""
    return sorted(records, key=lambda record: str(record.document["time"]))


def chosen(records: Iterable[Record], model: str, limit: int) -> Iterator[Record]:
    """Return the first records of a model, or of all."""
    of_model = (record for record in records if model in ("", record.model))
    return itertools.islice(of_model, limit or None)
