"""The GPU of an instance, as the only one that its process sees: CUDA_VISIBLE_DEVICES `instance`.

Set in the process itself, before the model is imported: CUDA reads the variable when it begins.
"""

from __future__ import annotations

import json
import os

from zmqtriton_floor import wire
from zmqtriton_floor.signature import config_parameter
from zmqtriton_stub.memory import device_span

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def see_own_gpu(load: wire.LoadModel) -> wire.LoadModel:
    """Hide other GPUs if the model asks for it; return its load with CUDA's number of the GPU.

    An instance on the CPU sees none, and one of KIND_MODEL, which chooses by itself, all.
    """
    is_asked = config_parameter(json.loads(load.config), _VARIABLE) == "instance"
    if not is_asked or load.kind == "MODEL":
        return load
    visible = os.environ.get(_VARIABLE)
    # the server's numbers are positions in that list, or else go by the bus
    entry = str(load.device) if visible is None else visible.split(",")[load.device].strip()
    os.environ[_VARIABLE] = entry if load.kind == "GPU" else ""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    device_span.only_gpu = load.device
    return load._replace(device=0)
