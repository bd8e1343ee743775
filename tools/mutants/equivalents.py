"""Mutants with the original's behaviour, and the reason: no test can notice them."""

from __future__ import annotations

_BROKER = "zmqtriton/broker"
_SUPERVISOR = "zmqtriton/supervisor"
_STUB = "stub/zmqtriton_stub"
_ENTRANCE = "frontends/zmqtriton_frontends/entrance"
_GATEWAY = "frontends/zmqtriton_frontends/gateway"

#: By `Mutation.name`.
EQUIVALENTS: dict[str, str] = {
    f"{_GATEWAY}/trace_settings.py number: len(match[1]) < _MANY_DIGITS -> "
    "len(match[1]) <= _MANY_DIGITS": "a number of as many digits is out of range by itself",
    f"{_GATEWAY}/streams.py Reader.untold: arrivals.room > FREE_BYTES -> "
    "arrivals.room >= FREE_BYTES": "of the free room nothing can be given back",
    f"{_GATEWAY}/loads.py load: if not files -> if False": (
        "a shortcut: without files a thread finds nothing to write"
    ),
    f"{_ENTRANCE}/ask.py -: 0 in begun_ns: int = 0 -> 1": (
        "both are long ago, and every protocol says when"
    ),
    f"{_STUB}/api/tensor.py Tensor.__init__: if type(name) is not str -> if False": (
        "a shortcut: a str stays as it is"
    ),
    f"{_STUB}/execution/responses.py OpenRequest.encode: if sendable and (not is_declared or "
    "instance.declared_shapes) -> if True": (
        "a shortcut: the same is compared again, with its words"
    ),
    f"{_STUB}/broker/bls_client.py BlsClient.wait: time.monotonic() - question.granted_s >= "
    "_GRANT_EVERY_S -> time.monotonic() - question.granted_s > _GRANT_EVERY_S": "a clock of floats",
    f"{_STUB}/execution/executions.py Executions._record: if batch.ids -> if True": (
        "ids are kept where their lines are logged"
    ),
    f"{_STUB}/execution/streams.py OpenStream.cancel: 0 in self._out_bytes = 0 -> 1": (
        "one byte of a window of many, of which nothing is sent any more"
    ),
    f"{_STUB}/supervisor_client.py SupervisorClient._receive: if len(self.inbox) > count -> "
    "if True": "who is woken for nothing waits again",
    f"{_STUB}/watch.py Watch.follow: 0 in writable = select.EPOLLOUT if self._is_backed_up else 0 "
    "-> 1": "1 is EPOLLIN, which is asked for anyway",
    f"{_STUB}/watch.py Watch.__init__: 0 in self._next_poll_ns = 0 -> 1": "both are long ago",
    f"{_STUB}/memory/region_outputs.py _Mapped._populate: len(self._ranges) >= _MAX_RANGES -> "
    "len(self._ranges) > _MAX_RANGES": "which ranges are forgotten changes only what is done twice",
    f"{_BROKER}/metrics/latencies.py LatencyStatistics.record_ensemble: 0 in self._took(1, (0, "
    "compute_ns, 0)) -> 1": "summaries count microseconds",
    f"{_BROKER}/requests/limits.py Token.__init__: 0 in self.concurrency = 0 -> 1": (
        "it is set straight afterwards"
    ),
    f"{_BROKER}/scheduling/generations.py GenerationRegistry._find_sequence_generation: "
    "if sequences is not None and sequences.knows(row.correlation) -> if False": (
        "a shortcut: it is among those that are asked one by one"
    ),
    f"{_SUPERVISOR}/actions.py -: 0 in line: int = 0 -> 1": "who gives a file gives the line, too",
    f"{_SUPERVISOR}/control/regions.py read_on_gpu: 0 in _, size = _place(name, {{**arguments, "
    "'offset': 0}) -> 1": "the offset is not looked at",
    f"{_BROKER}/scheduling/generations.py GenerationRegistry.newest: "
    "generation.version > best.version -> generation.version >= best.version": (
        "no two generations have the same version: it is their key"
    ),
    f"{_BROKER}/scheduling/placement.py Placement._instance_with_free_slot: "
    "if not (self._has_concurrent_batches or self.is_limited) -> if False": (
        "a shortcut: without either no busy instance can begin another batch"
    ),
}
