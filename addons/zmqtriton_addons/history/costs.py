"""The memory of instances on GPUs, and what of the machine's memory they share.

The kernel walks through all pages of a process for the latter, so only models are measured whose
page is open. A thread of its own asks NVIDIA's library, since a driver may hang.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from zmqtriton_addons.memory.readings import Shares, gpu_memory_of, read_shares

_pause = time.sleep
_log = logging.getLogger(__name__)


class InstanceCosts:
    def __init__(self) -> None:
        self._pids: Collection[int] = ()
        self._on_gpus: Mapping[int, Mapping[str, int]] = {}
        #: Until when each model is watched.
        self._until_s: dict[str, float] = {}
        self._shares: Mapping[int, Shares | None] = {}

    def watch(self, model: Any, until_s: float) -> None:
        """Read the memory of a model's processes with each sample until then."""
        if isinstance(model, str) and model:
            self._until_s[model] = until_s

    def watch_gpus(self, interval_s: float) -> None:
        """Start reading, in a thread that ends with the process, or at once without a driver."""
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
        """Read those of watched models; the rows begin with pid and model."""
        self._until_s = {name: s for name, s in self._until_s.items() if s > now_s}
        models = {pid: model for pid, model, *_ in processes if model}
        self._pids = models.keys()
        watched = [pid for pid, model in models.items() if model in self._until_s]
        self._shares = await asyncio.to_thread(_read_all, watched) if watched else {}

    def of(self, pid: int) -> dict[str, Any]:
        """Return the figures of a process, as far as they are known."""
        shares = self._shares.get(pid)
        figures = {} if shares is None else {f"{k}_bytes": v for k, v in shares._asdict().items()}
        on_gpus = self._on_gpus.get(pid)
        return {**figures, "gpu_bytes": on_gpus} if on_gpus else figures


def _read_all(pids: Iterable[int]) -> dict[int, Shares | None]:
    return {pid: read_shares(pid) for pid in pids}
