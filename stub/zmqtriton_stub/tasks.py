"""Tasks: code of add-ons that runs in this process when the supervisor asks for it.

A task is a function in a file that needs only Python's own library. It runs in a thread of its own
while the model continues. Its file is loaded for each task and dropped afterwards, so other
processes have no memory of it. Its result is the answer to the call.
"""

from __future__ import annotations

import json
from _thread import start_new_thread
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

from zmqtriton_floor import prctl, wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.lazy_names import new_module
from zmqtriton_stub.api.errors import clip, describe

#: The verb of the calls that begin a task.
RUN = "run"


class Subject(Protocol):
    """An instance, as far as tasks may use it."""

    name: str

    def request_ids(self) -> List[str]:
        """Return the clients' ids of requests that the instance has now."""

    def other_threads(self) -> Sequence[int]:
        """Return the numbers of the threads of other instances in this process."""

    @property
    def directories(self) -> Sequence[str]:
        """The directories with the files of the model."""


def begin(instance: Optional[Subject], tell: Callable[[Any], None], call: wire.Call) -> None:
    """Run a task in a thread of its own; `tell` sends its result to the supervisor."""
    try:
        start_new_thread(lambda: tell(_run(instance, call)), ())
    except RuntimeError as error:  # at the limit of threads
        tell(wire.CallResult(call.id, InternalError.number, str(error), ""))


def execute(code: Dict[str, Any], *arguments: Any) -> Any:
    """Run the function of an add-on."""
    module, load = new_module("zmqtriton_task", code["file"])
    load(module)
    return getattr(module, code["function"])(*arguments, **code["values"])


def _run(instance: Optional[Subject], call: wire.Call) -> wire.CallResult:
    prctl.set_name(RUN)
    try:
        result = execute(json.loads(call.arguments), instance)
        return wire.CallResult(call.id, 0, "", json.dumps(result))
    except Exception as error:  # noqa: BLE001 - the model and its server go on
        return wire.CallResult(call.id, InternalError.number, clip(describe(error)), "")
