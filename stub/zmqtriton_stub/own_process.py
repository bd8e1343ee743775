"""The process around an instance, as far as the loop must know it: here, one of the instance's own.

An instance may also live in a process of the user's, on a thread among others: that one's
surroundings leave alone what is the user's, and end the thread where this ends the process.
"""

from __future__ import annotations

import gc
import json
import os
from typing import Any, Callable, NoReturn

from zmqtriton_floor import wire
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import model_code, own_gpu
from zmqtriton_stub.api.tensor import set_memory
from zmqtriton_stub.forks.hooks import Forks
from zmqtriton_stub.instance import Instance
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import import_class
from zmqtriton_stub.pre_import import check_files, take_priority


class OwnProcess:
    """A process that runs one instance and nothing else."""

    #: It may die because a client truncates its shared memory.
    maps_regions = True
    #: What it takes is the instance's.
    has_own_memory = True

    def adopt(self, instance: Instance, bootstrap: wire.Bootstrap, memory: TensorMemory) -> None:
        """Take note of the instance, before its model is there."""
        this_process.current = instance
        # a fork has a copy of the arena's accounts, and none of its memory
        set_memory(lambda size: None if this_process.is_forked else memory.outputs.make(size))
        Forks(instance, bootstrap, memory).begin()

    def see_own_gpu(self, load: wire.LoadModel) -> wire.LoadModel:
        """Hide other instances' GPUs, if the model asks for it and shares the process with none."""
        return own_gpu.see_own_gpu(load) if self.has_own_memory else load

    def model_class(self, load: wire.LoadModel, instance: Instance) -> Any:
        """Return the model's class. Raises whatever its code does."""
        config = json.loads(load.config)
        check_files(config, load.directory)
        take_priority(config, instance.log)
        model_code.begin((load.directory, os.path.dirname(load.path)), load.bytecode)
        return import_class(load)

    def settle(self) -> None:
        """Take note that the model is initialized: present objects mostly stay."""
        gc.collect()
        gc.freeze()

    def collect(self) -> None:
        """Find senders that are garbage, but in a circle, and would keep their clients waiting."""
        gc.collect()

    def lose_supervisor(self, finalize: Callable[[], None]) -> None:
        """End, as nobody is left to report to; `finalize` ends the loop. From any thread."""
        os._exit(1)

    def give_up(self, reason: str) -> NoReturn:
        """End because this instance cannot go on."""
        os.write(2, f"{reason}\n".encode())
        os._exit(1)
