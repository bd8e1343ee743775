"""The life of a process that serves clients, and its listeners."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {"listener": "address address_of", "process": "Service run run_local"}

if TYPE_CHECKING:
    from zmqtriton_frontends.serving.listener import address, address_of
    from zmqtriton_frontends.serving.process import Service, run, run_local
else:
    __getattr__ = lazy_names(__name__, _NAMES)
