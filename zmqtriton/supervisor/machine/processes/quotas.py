"""Limits the memory and the share of the cores of model processes.

If the server may make control groups, and has that add-on, the kernel enforces the limits;
otherwise memory is measured once a second and CPU weights become nice values. Reports which process
has taken too much; the core decides what follows.
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from zmqtriton import addons
from zmqtriton.config.parameters import (
    CPU_WEIGHT,
    MAX_MEMORY_BYTES,
    USUAL_CPU_WEIGHT,
    Quota,
    QuotaUse,
)
from zmqtriton.host.capacity import enclosing_groups, read_text
from zmqtriton.supervisor.machine.memory.segments import SegmentRegistry
from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings.offers import Hook

_log = logging.getLogger(__name__)

#: The kernel's ratio of the shares of two neighbouring nice values.
_NICE_RATIO = 1.25
_LEAST_NICE, _MAX_NICE = -20, 19

#: Gets the serial of a process that has taken too much, and by how much.
Report = Callable[[int, Reason], object]
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: An older kill belongs to another death.
_RECENT_KILL_S = 3.0
_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def nice_value(weight: int, usual: int = 0) -> int:
    """Return the nice value whose share of the cores comes closest to a CPU weight's.

    `usual` is the nice value of the usual weight.
    """
    steps = math.log(weight / USUAL_CPU_WEIGHT) / math.log(_NICE_RATIO)
    return max(_LEAST_NICE, min(_MAX_NICE, usual - round(steps)))


class ControlGroups(Protocol):
    """Control groups of instances, by serial number; the kernel enforces the limits."""

    #: The directory with the control groups of all models.
    own: Path

    def add(self, serial: int, pid: int, quota: Quota) -> None:
        """Put the process of an instance into a group with its model's limits. Raises OSError."""

    def set_cpu_weight(self, model: str, weight: int) -> None:
        """Share the cores by weights from now on, between models that are busy. Raises OSError."""

    def has(self, serial: int) -> bool:
        """True if the instance has a group."""

    def memory_bytes(self, serial: int) -> int:
        """Return the memory of an instance that has a group."""

    def was_killed_for_memory(self, serial: int) -> bool:
        """True if the kernel has killed the instance because of its own limit."""

    def remove(self, serial: int) -> None:
        """Remove the group of a dead instance, and kill the processes left in it."""

    def remove_empty(self) -> None:
        """Remove empty groups; called once a second."""

    def close(self) -> None:
        """Remove all groups, once the processes of models are dead."""


#: Makes groups of processes, so that the kernel limits memory and processors of models.
PROCESS_GROUPS = Hook[Callable[[], ControlGroups]]("supervisor.process_groups")


class QuotaEnforcement:
    def __init__(
        self,
        children: Mapping[int, Child],
        segments: SegmentRegistry,
        report: Report,
    ) -> None:
        self._children = children
        self._segments = segments
        self._report = report
        self._groups: ControlGroups | None = None
        #: The reason why there are no control groups.
        self._why_no_groups = "the add-on 'control_groups' is not installed"
        self._out_of_memory = OomDetector(now_s=time.monotonic())
        #: The log says what keeps processes to their limits.
        self._is_told = False
        #: Limited processes, with their memory when it was last looked at.
        self._memory: dict[int, int] = {}
        #: Number of times that an instance has exceeded its memory, by model.
        self._excesses = Counter[str]()

    def prepare_groups(self) -> None:
        """Let the kernel enforce the limits if it can. Call this before the first child."""
        make = PROCESS_GROUPS.first_of(addons.offers())
        if make is not None:
            try:
                self._groups = make()
            except OSError as error:
                self._why_no_groups = str(error)
            else:
                self._out_of_memory = OomDetector(group=self._groups.own, now_s=time.monotonic())

    # --------------------------------------------------------------- processes

    def begin(self, child: Child) -> None:
        """Limit the new process of an instance, before it has loaded anything."""
        quota = child.quota
        if not quota.model:
            return
        if self._groups is not None:
            try:
                self._groups.add(child.serial, child.pid, quota)
            except OSError as error:
                _log.error("model '%s' has no control group: %s", quota.model, error)
                self._groups.remove(child.serial)
        if (quota.max_memory_bytes or quota.cpu_weight != USUAL_CPU_WEIGHT) and not self._is_told:
            self._is_told = True
            _log.info("limits on memory and cores of models are kept by %s", self.means)
        if quota.max_memory_bytes:
            self._memory[child.serial] = 0
        if quota.cpu_weight != USUAL_CPU_WEIGHT:
            self._set_cpu_weight(child.pid, quota)

    def _set_cpu_weight(self, pid: int, quota: Quota) -> None:
        if self._groups is not None:
            with suppress(OSError):  # without that controller there are still nice values
                self._groups.set_cpu_weight(quota.model, quota.cpu_weight)
                return
        nice = nice_value(quota.cpu_weight, os.getpriority(os.PRIO_PROCESS, 0))
        try:
            os.setpriority(os.PRIO_PGRP, pid, nice)
        except OSError as error:
            text = "model '%s' runs without its %s (%d): nice value %d: %s"
            _log.warning(text, quota.model, CPU_WEIGHT, quota.cpu_weight, nice, error.strerror)

    def end(self, child: Child, reason: Reason) -> Reason:
        """Handle the death of a process; return its reason, which can be a limit on memory."""
        reason = self._out_of_memory.explain_death(reason, time.monotonic())
        self._memory.pop(child.serial, None)
        if self._groups is None or not child.quota.model:
            return reason
        is_over = self._groups.was_killed_for_memory(child.serial)
        self._groups.remove(child.serial)
        limit = child.quota.max_memory_bytes
        if not (is_over and limit):
            return reason
        self._excesses[child.quota.model] += 1
        text = f"it needed more than {limit} bytes ({MAX_MEMORY_BYTES}): {reason.text}"
        return Reason.of(Kind.OVER_MEMORY_QUOTA, text, reason, limit=limit)

    # ------------------------------------------------------------- looking

    def poll(self) -> None:
        """Check the memory of limited processes; called once a second."""
        self._out_of_memory.poll(time.monotonic())
        if self._groups is not None:
            self._groups.remove_empty()
        for serial in list(self._memory):
            self._look(self._children[serial])

    def _look(self, child: Child) -> None:
        serial, limit = child.serial, child.quota.max_memory_bytes
        if self._groups is not None and self._groups.has(serial):
            self._memory[serial] = self._groups.memory_bytes(serial)
        else:
            used = own_memory_bytes(child.pid) + self._segments.bytes_of(serial)
            was_over = self._memory[serial] > limit
            self._memory[serial] = used
            if used > limit and not was_over:
                self._excesses[child.quota.model] += 1
                text = f"it used {used} of at most {limit} bytes ({MAX_MEMORY_BYTES})"
                self._report(serial, Reason.of(Kind.OVER_MEMORY_QUOTA, text, limit=limit))

    def use_of(self, model: str) -> QuotaUse:
        """Return a model's use, as of the last check."""
        memory = [m for s, m in self._memory.items() if self._children[s].quota.model == model]
        return QuotaUse(
            self._segments.bytes_of_model(model),
            self._segments.refusals.get(model, 0),
            max(memory, default=0),
            self._excesses[model],
        )

    @property
    def means(self) -> str:
        """Return the means of enforcing the limits, in words."""
        if self._groups is not None:
            return f"control groups below {self._groups.own}"
        return f"looking every second, and nice values, since {self._why_no_groups}"

    def close(self) -> None:
        """Remove all traces, once all children are dead."""
        if self._groups is not None:
            self._groups.close()


def own_memory_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the private memory of a process and its descendants.

    Files and shared memory do not count. Pages that a fork shares with its parent count in both: to
    distinguish them takes long.
    """
    family = [pid]
    for each in family:
        family += _children(proc / str(each))
    return sum(_own_bytes(proc / str(each)) for each in family)


def _own_bytes(process: Path) -> int:
    try:
        _, resident, shared, *_ = (process / "statm").read_text().split()
    except (OSError, ValueError):
        return 0  # it has ended
    return max(0, int(resident) - int(shared)) * _PAGE


def _children(process: Path) -> list[int]:
    pids = []
    with suppress(OSError):  # it has ended, or the kernel has no such file
        for thread in (process / "task").iterdir():
            pids += [int(pid) for pid in (thread / "children").read_text().split()]
    return pids


class OomDetector:
    """Finds out whether the kernel has just killed a process because memory had run out.

    Such a process dies of SIGKILL like any other, so the kernel's counters are read: the control
    group's if it has one, else the machine's. They do not name the killed process.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        groups: Path = Path("/sys/fs/cgroup"),
        now_s: float = 0.0,
        group: Path | None = None,
    ) -> None:
        """Set up; `group` contains all processes of the server, if its own group does not."""
        self._proc = proc
        self._groups = groups
        self._group = group
        self._kill_count = self._count()
        self._changed_s = now_s - 2 * _RECENT_KILL_S

    def poll(self, now_s: float) -> None:
        """Read the counters; called once a second."""
        killed = self._count()
        if killed != self._kill_count:
            self._kill_count = killed
            self._changed_s = now_s

    def explain_death(self, reason: Reason, now_s: float) -> Reason:
        """Return the probable reason of a death; `reason` itself if memory was not the cause."""
        if reason.values.get("signal") != "SIGKILL":
            return reason
        self.poll(now_s)
        if now_s - self._changed_s > _RECENT_KILL_S:
            return reason
        return Reason.of(Kind.OUT_OF_MEMORY, f"{reason.text}, by the kernel: out of memory")

    def _count(self) -> int:
        own = self._group or next(enclosing_groups("memory", self._proc, self._groups), None)
        # of version 2, of version 1, of the machine
        files = [own / "memory.events", own / "memory.oom_control"] if own else []
        texts = map(read_text, (*files, self._proc / "vmstat"))
        match = next(filter(None, map(_COUNTER.search, texts)), None)
        return int(match[1]) if match else 0
