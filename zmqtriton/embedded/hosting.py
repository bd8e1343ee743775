"""The instances of models that this process runs for a server, each on a thread of its own.

They speak the stub's protocol and are stubs to everybody else. What a process of their own would
do to itself, these leave undone: it is the user's. Where such a process would die, the thread ends.
"""

from __future__ import annotations

import os
import re
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from zmqtriton.embedded.hosted_process import Descriptors, HostedProcess, ProcessOfClass
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.execution_progress import Progress
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub.instance import Instance
from zmqtriton_stub.loop import Stub
from zmqtriton_stub.memory.tensor_memory import TensorMemory

#: How many descriptors come with the order to start an instance.
_DESCRIPTORS = 3

#: All that this process runs; a fork of it must let go of their connections.
_stubs: weakref.WeakSet[Stub] = weakref.WeakSet()


def _abandon_all() -> None:
    for stub in list(_stubs):
        stub.abandon()


os.register_at_fork(after_in_child=_abandon_all)


class _Binding(NamedTuple):
    """The model classes of one binding, one for each instance."""

    model: str
    model_classes: Sequence[Any]
    in_processes: bool
    on_report: Callable[[str], object]

    def model_class(self, instance: str) -> Any:
        """Return the class for an instance, whose name ends with its number."""
        match = re.search(r"_(\d+)$", instance)
        index = int(match[1]) if match else 0
        return self.model_classes[index] if index < len(self.model_classes) else _Missing


class _Missing:
    """In place of a class that is not bound any more."""

    def __init__(self) -> None:
        raise InternalError("nothing is bound here for this instance")


_NOTHING = _Binding("", (), False, lambda report: None)


class Hosting:
    """The bindings of a guest: for each the classes of its models, one per instance."""

    def __init__(self) -> None:
        #: Each by its number, also while its load goes on.
        self._bindings: dict[int, _Binding] = {}
        self._last = 0
        self._running: set[HostedThread | HostedProcess] = set()

    @property
    def models(self) -> list[str]:
        """Return the names of the models that are bound, or may be: a load was interrupted."""
        return list(dict.fromkeys(binding.model for binding in self._bindings.values()))

    @property
    def is_running(self) -> bool:
        """True while an instance runs."""
        return bool(self._running)

    def bind(
        self,
        model: str,
        model_classes: Sequence[Any],
        *,
        in_processes: bool,
        on_report: Callable[[str], object],
    ) -> int:
        """Keep the classes, which are like TritonPythonModel; return the binding's number."""
        self._last += 1
        self._bindings[self._last] = _Binding(model, tuple(model_classes), in_processes, on_report)
        return self._last

    def replace(self, model: str, binding: int = 0) -> None:
        """Note which binding serves a model now, 0 for none; the others are forgotten."""
        for number, bound in list(self._bindings.items()):
            if bound.model == model and number != binding:
                self.release(number)

    def release(self, binding: int) -> None:
        """Forget the bound models; running instances go on."""
        self._bindings.pop(binding, None)

    def start(self, order: wire.HostInstance, descriptors: list[int]) -> None:
        """Start an instance on a thread; takes the descriptors over."""
        if len(descriptors) != _DESCRIPTORS:
            return
        ends = Descriptors(*descriptors)
        descriptors.clear()
        binding = self._bindings.get(order.binding, _NOTHING)
        model_class = binding.model_class(order.instance)
        instance: HostedThread | HostedProcess
        on_end = self._running.discard
        if binding.in_processes:
            instance = HostedProcess(order.instance, model_class, ends, on_end, binding.on_report)
        else:
            instance = HostedThread(order.instance, model_class, ends, on_end)
        self._running.add(instance)
        instance.start()


class _SharedProcess(ProcessOfClass):
    """The user's process, which an instance shares with everything else there."""

    maps_regions = has_own_memory = False

    def adopt(self, instance: Instance, bootstrap: wire.Bootstrap, memory: TensorMemory) -> None:
        """Leave pb_utils alone, and forks: several instances are here."""

    def settle(self) -> None:
        """Leave the garbage collector alone."""

    def collect(self) -> None:
        """Leave the garbage collector alone."""

    def lose_supervisor(self, finalize: Callable[[], None]) -> None:
        finalize()

    def give_up(self, reason: str) -> NoReturn:
        raise InternalError(reason)


class HostedThread(threading.Thread):
    """One instance, from its thread's first moment to its last."""

    def __init__(
        self, name: str, model_class: Any, ends: Descriptors, on_end: Callable[[Any], object]
    ) -> None:
        """Set up; `on_end` is called at the end, on this thread."""
        super().__init__(name=f"zmqtriton {name}", daemon=True)
        self._process = _SharedProcess(model_class)
        self._lifeline = Lifeline.inherited(ends.lifeline)
        self._progress = Progress(ends.page)
        os.close(ends.page)
        self._listener = ends.listener
        self._on_end = on_end

    def run(self) -> None:
        stub = Stub(self._lifeline, self._progress, self._listener, self._process)
        _stubs.add(stub)
        try:
            stub.run()
        except SystemExit:
            pass  # what the user's code said ends its instance, and nothing else
        except BaseException:  # noqa: BLE001 - the last edge: say what it was, then end
            traceback.print_exc()
        finally:
            stub.close()
            self._on_end(self)
