"""Takes a sample every few seconds, and answers questions about the samples.

Each sample is one light question to the broker and one to the supervisor, and a short read of /proc
for each process. To tell shared memory the kernel walks through all pages of a process, so this is
measured only for models whose page is open. A thread of its own calls NVIDIA's library, since a
driver may hang.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.wire import (
    InvalidArgument,
    Unsupported,
    ZmqTritonError,
    metrics,
    numbers,
    wire,
)
from zmqtriton_standard.history.samples import (
    INTERVAL_S,
    History,
    ModelSample,
    ProcessesSample,
    ServerSample,
)
from zmqtriton_standard.memory.readings import Shares, gpu_memory_of, read_shares
from zmqtriton_standard.metrics.machine import Look, MachineLoad
from zmqtriton_standard.metrics.processes import Processes, Usage

_log = logging.getLogger(__name__)

#: A sample that takes longer is left out, so that they stay apart.
_WITHIN_S = INTERVAL_S - 1
#: Duration in seconds of reading the memory of a model's instances after each look of a client.
_WATCHED_S = 3 * INTERVAL_S
_RATES = ("requests_per_s", "failures_per_s", "queue_ms")
#: Clock that is never set, and continues while the machine sleeps.
_CLOCK = time.CLOCK_BOOTTIME
#: A row of the supervisor's answer: the pid, the model or "", the version, its instances there.
_Process = tuple[int, str, int, int]
#: A row of the broker's answer.
Reading = dict[str, Any]
_SUMS = ("pending", "succeeded", "failed", "queued", "queue_ns", "inferences", "executions")
_pause = time.sleep


class InstanceCosts:
    """The memory of instances on GPUs, and their shares of the machine's memory."""

    def __init__(self) -> None:
        self._pids: Collection[int] = ()
        self._on_gpus: Mapping[int, Mapping[str, int]] = {}
        #: Until when each model is watched.
        self._until_s: dict[str, float] = {}
        self._shares: Mapping[int, Shares | None] = {}

    def watch(self, model: Any, until_s: float) -> None:
        """Read the memory of a model's processes with each sample until this time."""
        if isinstance(model, str) and model:
            self._until_s[model] = until_s

    def watch_gpus(self, interval_s: float) -> None:
        """Start a thread that reads GPUs; it ends with the process, or now without a driver."""
        threading.Thread(target=self._watch_gpus, args=(interval_s,), daemon=True).start()

    def _watch_gpus(self, interval_s: float) -> None:
        while True:
            try:
                self._on_gpus = gpu_memory_of(self._pids)
            except OSError as error:
                _log.debug("no memory of processes on GPUs: %s", error)
                return
            _pause(interval_s)

    async def look(self, processes: Iterable[tuple[int, str, int, int]], now_s: float) -> None:
        """Read the shared memory of the processes of watched models.

        Rows of `processes` begin with the pid and the model, "" for processes of the server.
        """
        self._until_s = {name: s for name, s in self._until_s.items() if s > now_s}
        models = {pid: model for pid, model, *_ in processes if model}
        self._pids = models.keys()
        watched = [pid for pid, model in models.items() if model in self._until_s]
        self._shares = (
            await asyncio.to_thread(lambda: {pid: read_shares(pid) for pid in watched})
            if watched
            else {}
        )

    def of(self, pid: int) -> dict[str, Any]:
        """Return the figures of a process, as far as they are known."""
        shares = self._shares.get(pid)
        figures = {} if shares is None else {f"{k}_bytes": v for k, v in shares._asdict().items()}
        on_gpus = self._on_gpus.get(pid)
        return {**figures, "gpu_bytes": on_gpus} if on_gpus else figures


class TokenRates:
    """Tokens per second of text models, from the sums of the process that counts tokens."""

    def __init__(self, gateway: Gateway) -> None:
        """Set up; without --token-metrics samples have no token rates."""
        tokens = metrics.TOKENS.first_of(gateway.settings.offers)
        directory = Path(gateway.settings.server.runtime_directory)
        self._made = partial(tokens.made_tokens, directory) if tokens else None
        #: The sum of each version at its last sample; None before the first answer.
        self._before: dict[str, int] | None = None
        self._at_s = 0.0

    async def add_to(self, models: dict[str, ModelSample]) -> dict[str, ModelSample]:
        """Return the samples with the rates since the last ones."""
        if self._made is None:
            return models
        try:
            sums = await asyncio.to_thread(self._made)
        except (OSError, ValueError):
            return models  # it is being replaced
        return self.rate(models, sums, time.monotonic())

    def rate(
        self, models: dict[str, ModelSample], sums: dict[str, int], now_s: float
    ) -> dict[str, ModelSample]:
        """Return the samples with the rates from these sums."""
        seconds, self._at_s = now_s - self._at_s, now_s
        if self._before is None:
            self._before = sums  # their time is not known
            return models
        rated = dict(models)
        for name in models.keys() & sums.keys():
            # less than before if their process was replaced
            grown = sums[name] - self._before.get(name, 0)
            made = grown if grown >= 0 else sums[name]
            rated[name] = models[name]._replace(tokens_per_s=made / seconds)
            self._before[name] = sums[name]
        return rated


class Sampler:
    def __init__(self, gateway: Gateway, load: MachineLoad) -> None:
        self._gateway = gateway
        self._load = load
        self._history = History()
        self._processes = Processes()
        self._tokens = TokenRates(gateway)
        self._costs = InstanceCosts()
        #: Models with requests in the last sample, by `model:version`; None if the broker had no
        #: readings for it.
        self._busy_models: dict[str, ModelSample] | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        self._costs.watch_gpus(INTERVAL_S)
        while True:
            began_s = time.monotonic()
            await self.sample()
            await asyncio.sleep(max(0.0, began_s + INTERVAL_S - time.monotonic()))

    async def sample(self) -> None:
        models, processes = await asyncio.gather(self._read_models(), self._read_processes())
        self._processes.look([pid for pid, *_ in processes], time.monotonic())
        usage = self._processes.usage
        usages = [usage[pid] for pid, *_ in processes if pid in usage]
        server = _server_sample(usages, await self._load.look(time.monotonic()))
        self._busy_models = models
        await self._costs.look(processes, time.monotonic())
        self._history.add(time.clock_gettime(_CLOCK), server, models, _by_model(processes, usage))

    async def _read_models(self) -> dict[str, ModelSample] | None:
        try:
            readings = await asyncio.wait_for(
                self._gateway.statistics(kind=wire.READINGS), _WITHIN_S
            )
        except (ZmqTritonError, asyncio.TimeoutError) as error:
            _log.debug("no sample of models: %r", error)
            return None
        # a broker's first answer only begins: what came since it was started is not known
        if not readings["seconds"]:
            return None
        return await self._tokens.add_to(samples_of(readings))

    async def _read_processes(self) -> list[_Process]:
        try:
            rows = await asyncio.wait_for(self._gateway.call("processes", {}), _WITHIN_S)
        except (ZmqTritonError, asyncio.TimeoutError) as error:
            _log.debug("no sample of processes: %r", error)
            return []
        return [tuple(row) for row in rows]

    # ---------------------------------------------------------------- questions

    def answer(self, call: wire.Call) -> wire.CallResult:
        """Answer a question from the supervisor."""
        try:
            result = self._find(call.verb, json.loads(call.arguments))
        except ZmqTritonError as error:
            return wire.CallResult(call.id, error.number, error.text, "null")
        return wire.CallResult(call.id, 0, "", json.dumps(result))

    def _find(self, verb: str, arguments: dict[str, Any]) -> Any:
        if verb == "latest":
            self._costs.watch(arguments.get("memory_of"), time.monotonic() + _WATCHED_S)
            return self._describe_latest()
        if verb != "history":
            raise Unsupported(f"'{verb}' cannot be asked here: ask the server")
        seconds = numbers.number("seconds", arguments.get("seconds", 3600), 1e-3, 1e9)
        model = arguments.get("model", "")
        if type(model) is not str:
            raise InvalidArgument("'model' must be a string")
        offset_s = time.time() - time.clock_gettime(_CLOCK)
        globs = arguments.get("visible_models")  # a reader without them may see all
        is_visible = (
            None if globs is None else lambda name: any(map(partial(fnmatchcase, name), globs))
        )
        return self._history.document(seconds, model, is_visible, offset_s)

    def _describe_latest(self) -> dict[str, Any]:
        """Return the last sample: each process's use, and the rates of busy models."""
        machine = self._load.troubles()
        processes = {
            str(pid): {
                "cpu_percent": usage.cpu_percent,
                "memory_bytes": usage.memory_bytes,
                **self._costs.of(pid),
            }
            for pid, usage in self._processes.usage.items()
        }
        if self._busy_models is None:
            return {"processes": processes, "rates": None, "machine": machine}
        rates = {
            name: {key: _rounded(getattr(sample, key)) for key in _RATES}
            for name, sample in self._busy_models.items()
        }
        for name, sample in self._busy_models.items():
            if sample.tokens_per_s is not None:
                rates[name]["tokens_per_s"] = _rounded(sample.tokens_per_s)
        return {"processes": processes, "rates": rates, "machine": machine}


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 3)


def _server_sample(usages: list[Usage], look: Look) -> ServerSample:
    shares = [usage.cpu_percent for usage in usages if usage.cpu_percent is not None]
    return ServerSample(
        cpu_percent=sum(shares) if shares else None,
        memory_bytes=sum(usage.memory_bytes for usage in usages) or None,
        **look._asdict(),
    )


def _by_model(processes: list[_Process], usage: Any) -> dict[str, ProcessesSample]:
    sums: dict[str, tuple[int, int]] = {}
    for pid, model, version, count in processes:
        if model and pid in usage:
            name = f"{model}:{version}"
            instances, size = sums.get(name, (0, 0))
            sums[name] = instances + count, size + usage[pid].memory_bytes
    return {name: ProcessesSample(*sum_) for name, sum_ in sums.items()}


def samples_of(answer: Mapping[str, Any]) -> dict[str, ModelSample]:
    """Return the samples by `model:version`; the generations of a version are added up."""
    sums: dict[str, Reading] = {}
    for reading in answer["readings"]:
        name = f"{reading['model']}:{reading['version']}"
        sums[name] = _sum(sums[name], reading) if name in sums else reading
    return {name: _sample(reading, answer["seconds"]) for name, reading in sums.items()}


def _sum(one: Reading, other: Reading) -> Reading:
    busier = max(one, other, key=lambda reading: int(reading["succeeded"]))
    return {**busier, **{key: one[key] + other[key] for key in _SUMS}}


def _sample(grown: Reading, seconds: float) -> ModelSample:
    return ModelSample(
        requests_per_s=grown["succeeded"] / seconds,
        failures_per_s=grown["failed"] / seconds,
        latency_p50_ms=_milliseconds(grown["p50_ns"]),
        latency_p99_ms=_milliseconds(grown["p99_ns"]),
        queue_ms=_milliseconds(_ratio(grown["queue_ns"], grown["queued"])),
        batch=_ratio(grown["inferences"], grown["executions"]),
        pending=grown["pending"],
    )


def _ratio(total: float, count: int) -> float | None:
    return total / count if count > 0 else None


def _milliseconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
