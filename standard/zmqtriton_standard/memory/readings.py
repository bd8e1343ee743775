"""Reads the memory of processes: the machine's from /proc, and a GPU's from NVIDIA's library.

Runs in a thread of the supervisor, since kernel and driver may take long to answer. A model's
memory includes the memory of all processes that its own processes have started.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from zmqtriton.sdk.process import Gpu
from zmqtriton_standard.metrics.processes import read_stat

_KIB = 1024
#: The library has room for as many processes more than it has just counted.
_MORE = 16
_UNKNOWN = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE


class _Process(ctypes.Structure):
    """The library's struct nvmlProcessInfo_t."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def family(model_by_pid: Mapping[int, str]) -> dict[int, str]:
    """Return the processes and all their descendants, each with its model.

    A guest may have started the server, but this process and its children are not the guest's.
    """
    parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdecimal()}
    parents[os.getpid()] = 0
    models = dict(model_by_pid)
    for pid in parents:
        line = [pid]
        while line[-1] not in models and (parent := parents.get(line[-1], 0)):
            line.append(parent)
        if model := models.get(line[-1]):
            models.update(dict.fromkeys(line, model))
    return models


def _parent(pid: int) -> int:
    stat = read_stat(pid)
    return stat.parent if stat else 0  # it has just ended


class Shares(NamedTuple):
    """The memory of a process in bytes: private, shared, and its proportional part (PSS)."""

    private: int
    shared: int
    #: The private bytes, and a part of each shared page.
    pss: int


def read_shares(pid: int, proc: Path = Path("/proc")) -> Shares | None:
    """Return the memory of a process; None if it has ended, or is another user's."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text("ascii").splitlines()[1:]
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) * _KIB for line in lines}
    of = {kind: sizes[f"{kind}_Clean"] + sizes[f"{kind}_Dirty"] for kind in ("Private", "Shared")}
    return Shares(of["Private"], of["Shared"], sizes["Pss"])


def process_memory_bytes(pid: int) -> int:
    """Return the memory of a process in bytes; 0 if the process does not exist.

    Shared pages count in proportion (PSS) if the kernel reports that, else fully.
    """
    if shares := read_shares(pid):
        return shares.pss
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as words:
            return int(words.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def gpu_memory(
    models: Mapping[int, str], models_by_gpu: Mapping[int, Collection[str]]
) -> Iterator[tuple[str, int, int]]:
    """Yield model, number of the GPU, and bytes, for each of these GPUs.

    Where the library lists no process, as in many containers, all memory that is in use on the GPU
    counts, divided evenly between the models that have instances there. Raises OSError
    if the driver does not answer, and at the end for a GPU that does not exist.
    """
    gpus = Gpu.chosen() if models_by_gpu else []
    for number in filter(range(len(gpus)).__contains__, models_by_gpu):
        here = models_by_gpu[number]
        used = _used_by_process(gpus[number])
        yield from ((models[pid], number, size) for pid, size in used.items() if pid in models)
        if here and not used:
            of_each = gpus[number].used_memory()[0] // len(here)
            yield from ((model, number, of_each) for model in here)
    if missing := [number for number in models_by_gpu if number >= len(gpus)]:
        raise OSError(f"there is no GPU {missing[0]}; nvidia-smi lists them")


def gpu_memory_of(pids: Container[int]) -> dict[int, dict[str, int]]:
    """Return the bytes of processes and their descendants, by number of the GPU.

    Empty without a driver, and where the library fails or lists none.
    """
    sizes: dict[int, dict[str, int]] = {}
    with suppress(OSError):
        for number, gpu in enumerate(Gpu.chosen()):
            for pid, used in _used_by_process(gpu).items():
                owner = pid
                while owner and owner not in pids:
                    owner = _parent(owner)
                if owner:
                    of_owner = sizes.setdefault(owner, {})
                    of_owner[str(number)] = of_owner.get(str(number), 0) + used
    return sizes


def _used_by_process(gpu: Gpu) -> dict[int, int]:
    """Return the bytes that each process has on a GPU, if the library can tell."""
    with gpu.opened() as (nvml, device):
        count = ctypes.c_uint()
        ask = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None:
            return {}  # a driver before 510
        ask(device, ctypes.byref(count), None)
        count.value += _MORE
        rows = (_Process * count.value)()
        if ask(device, ctypes.byref(count), rows):
            return {}  # no error: not every GPU can tell
        return {row.pid: row.used for row in rows[: count.value] if row.used != _UNKNOWN}
