"""The control plane: the models and processes that should run, and the steps towards them.

`core` decides and does no I/O; `service` is the loop that performs its decisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "machine.gpus": "NvmlError list_nvml_gpus visible_gpus",
    "machine.fitness.judging": "lacks",
    "machine.processes.port_holder": "describe_listener",
    "machine.python_settings": "check_settings",
    "machine.fitness.start_checks": "find_problems",
    "opened_server": "OpenedServer",
    "service": "run",
}

if TYPE_CHECKING:
    from zmqtriton.supervisor.machine.fitness.judging import lacks
    from zmqtriton.supervisor.machine.fitness.start_checks import find_problems
    from zmqtriton.supervisor.machine.gpus import NvmlError, list_nvml_gpus, visible_gpus
    from zmqtriton.supervisor.machine.processes.port_holder import describe_listener
    from zmqtriton.supervisor.machine.python_settings import check_settings
    from zmqtriton.supervisor.opened_server import OpenedServer
    from zmqtriton.supervisor.service import run
else:
    __getattr__ = lazy_names(__name__, _NAMES)
