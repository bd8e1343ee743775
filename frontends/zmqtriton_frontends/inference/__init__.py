"""The steps of both protocols before an inference is sent: find, admit, trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "catalogue": "ModelVersion",
    "load_on_demand": "attempt",
    "request_trace": "followed now_ns",
    "trace_sampling": "parent_in_headers",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.inference.catalogue import ModelVersion
    from zmqtriton_frontends.inference.load_on_demand import attempt
    from zmqtriton_frontends.inference.request_trace import followed, now_ns
    from zmqtriton_frontends.inference.trace_sampling import parent_in_headers
else:
    __getattr__ = lazy_names(__name__, _NAMES)
