"""The process around an instance, as far as the loop must know it: here, one of the instance's own.

An instance may also run on a thread of a user's process: then subclasses do not change the user's
process, and end the thread instead of the process.

Before the model is imported the process checks files against their checksums, which may take long,
sets its priority, and hides other instances' GPUs: CUDA reads its variable when it begins.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
from typing import Any, Callable, NoReturn, Sequence

from zmqtriton_floor import wire
from zmqtriton_floor.signature import config_parameter, sees_own_gpu
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import model_code
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.tensor import set_memory
from zmqtriton_stub.broker.model_metrics import ModelMetrics
from zmqtriton_stub.forks.hooks import Forks
from zmqtriton_stub.imports import installed_modules
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory import device_span
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import PythonModel, import_class

_CHUNK_BYTES = 1 << 20
_NICENESS = {"PRIORITY_MAX": -10, "PRIORITY_MIN": 10}
_VARIABLE = "CUDA_VISIBLE_DEVICES"


def see_own_gpu(load: wire.LoadModel) -> wire.LoadModel:
    """Hide other GPUs if the model asks for it; return its load with CUDA's number of the GPU.

    An instance on the CPU sees no GPU, and an instance of KIND_MODEL, which chooses by itself, sees
    all. The parameter may also list slices of a GPU (MIG), for the instances in turn.
    """
    value = config_parameter(json.loads(load.config), _VARIABLE)
    if not sees_own_gpu(value) or load.kind == "MODEL":
        return load
    # the server's numbers are positions in its list, or else go by the bus
    number, visible = load.device, os.environ.get(_VARIABLE)
    if value != "instance":
        place, visible = load.instance.rpartition("_")[2], value
        number = (int(place) if place.isdecimal() else 0) % (value.count(",") + 1)
    entry = str(number) if visible is None else visible.split(",")[number].strip()
    os.environ[_VARIABLE] = entry if load.kind == "GPU" else ""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    device_span.only_gpu = load.device
    return load._replace(device=0)


def check_files(config: Any, directory: str) -> None:
    """Compare the files with the parameters of the agent `checksum`. Raises if they differ."""
    for agent in config.get("model_repository_agents", {}).get("agents", []):
        for key, expected in agent["parameters"].items():
            name = key.partition(":")[2]
            try:
                digest = _md5(os.path.join(directory, name))
            except OSError as error:
                raise TritonModelException(
                    f"failed to open file '{name}' for its checksum: {error.strerror}"
                ) from None
            if digest != expected.strip().lower():
                raise TritonModelException(
                    f"Mismatched MD5 hash for file {name}, expected {expected}, got {digest}"
                )


def _md5(path: str) -> str:
    digest = hashlib.md5()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def take_priority(config: Any, say: Callable[[str, str], None]) -> None:
    """Set the priority of this process, as far as the system allows it."""
    name = config.get("optimization", {}).get("priority", "")
    if name in _NICENESS:
        try:
            os.nice(_NICENESS[name])
        except OSError as error:
            say("W", f"{name} has no effect: {error.strerror}")


def freeze() -> None:
    """Keep existing objects out of garbage collections, which in a fork would copy their pages."""
    gc.collect()
    gc.freeze()


class OwnProcess:
    """A process that runs one instance and nothing else."""

    #: True if clients' shared memory is mapped. The process may die if a client truncates it.
    maps_regions = True
    #: True if all memory and GPUs of the process are the instance's.
    has_own_memory = True
    #: Metrics that the model's code has made before there was an instance; None without any.
    measures: ModelMetrics | None = None
    #: The model of earlier code that the instance adopts from; None if it is initialized.
    predecessor: PythonModel | None = None

    def threads_beside(self, instance: str) -> Sequence[int]:
        """Return the numbers of the threads that other instances have in this process."""
        return ()

    def adopt(
        self, instance: StubInstance, bootstrap: wire.Bootstrap, memory: TensorMemory
    ) -> None:
        """Bind pb_utils and future forks to the instance, before its model is imported."""
        this_process.current = instance
        # a fork has a copy of the arena's accounts, and none of its memory
        set_memory(lambda size: None if this_process.is_forked else memory.outputs.make(size))
        Forks(instance, bootstrap, memory).begin()

    def see_own_gpu(self, load: wire.LoadModel) -> wire.LoadModel:
        """Hide other instances' GPUs if the model asks for it, unless they share the process."""
        return see_own_gpu(load) if self.has_own_memory else load

    def model_class(self, load: wire.LoadModel, instance: StubInstance) -> Any:
        """Return the model's class. Raises the exceptions of its code."""
        config = json.loads(load.config)
        check_files(config, load.directory)
        take_priority(config, instance.log)
        model_code.begin((load.directory, os.path.dirname(load.path)), load.bytecode)
        return import_class(load)

    def has_loaded(self, instance: StubInstance, model: PythonModel) -> None:
        """Handle the end of a load: the instance serves."""

    def imported_modules(self) -> str:
        """Return the names of the modules of installed packages that were imported, with blanks."""
        return " ".join(installed_modules())

    def settle(self) -> None:
        """Keep existing objects out of garbage collection: the model is ready, and most stay."""
        freeze()

    def collect(self) -> None:
        """Collect senders in reference cycles, whose clients would wait for ever."""
        gc.collect()

    def lose_supervisor(self, finalize: Callable[[], None]) -> None:
        """End: the supervisor is gone, and `finalize` would only end the loop. From any thread."""
        os._exit(1)

    def give_up(self, reason: str) -> NoReturn:
        """End because this process cannot go on; clients and operators get the reason."""
        os.write(2, f"Fatal Python error: {reason}\n".encode())  # as Python's, which are passed on
        os._exit(1)
