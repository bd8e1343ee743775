"""The life of a stub without a model, which the fork server lives before it forks any.

What Python makes at the first uses of a function, a class or a type is made here once, and not by
each stub, which would have it in memory of its own.
"""

from __future__ import annotations

import os
from typing import Any

from zmqtriton_floor import execution_progress, wire
from zmqtriton_floor.execution_progress import Progress
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.settings import codec
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub.instance import Instance
from zmqtriton_stub.loop import Stub
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.own_process import OwnProcess

#: No broker listens there.
_NOWHERE = os.devnull
_CONFIG = (
    '{"name": "m", "input": [{"name": "INPUT", "data_type": "TYPE_FP32", "dims": [-1]}],'
    ' "output": [{"name": "OUTPUT", "data_type": "TYPE_FP32", "dims": [-1]}]}'
)


class _NoModel:
    """In the place of a model."""


class _Rehearsal(OwnProcess):
    """The surroundings of an instance that leaves nothing in this process."""

    def adopt(self, instance: Instance, bootstrap: wire.Bootstrap, memory: TensorMemory) -> None:
        """Do nothing: this process is no instance."""

    def model_class(self, load: wire.LoadModel, instance: Instance) -> Any:
        return _NoModel

    def settle(self) -> None:
        """Do nothing: this process still changes."""


def rehearse() -> None:
    """Live from Bootstrap to Finalize. Raises OSError if there are no descriptors for it."""
    ours, theirs = pair()
    page = os.memfd_create("zmqtriton-rehearsal", os.MFD_CLOEXEC)
    os.truncate(page, execution_progress.SIZE)
    supervisor, progress = Lifeline(ours), Progress(page)
    os.close(page)
    for message in (
        wire.Bootstrap(1, bytes(16), "stub", _NOWHERE, 1, codec.encode(StubSettings())),
        wire.LoadModel("m_0_0", "m", 1, "CPU", 0, _NOWHERE, _NOWHERE, _CONFIG, 0),
        wire.Initialize(_CONFIG),
        wire.Finalize(),
    ):
        supervisor.send(message)
    listener = os.open(_NOWHERE, os.O_RDONLY | os.O_CLOEXEC)
    stub = Stub(Lifeline(theirs), progress, listener, _Rehearsal())
    try:
        stub.run()
    finally:
        stub.close()
        supervisor.close()
