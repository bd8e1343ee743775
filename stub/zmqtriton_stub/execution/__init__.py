"""From a batch to its responses: execute(), streams, implicit state, warm-up."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "executions": "Execution Executions",
    "response_counts": "ResponseCounter",
    "responses": "OutcomeWithBody OpenRequest state_lock",
    "streams": "OpenStream",
}

if TYPE_CHECKING:
    from zmqtriton_stub.execution.executions import Execution, Executions
    from zmqtriton_stub.execution.response_counts import ResponseCounter
    from zmqtriton_stub.execution.responses import OpenRequest, OutcomeWithBody, state_lock
    from zmqtriton_stub.execution.streams import OpenStream
else:
    __getattr__ = lazy_names(__name__, _NAMES)
