"""The process that prepares the environment of a model; started by the supervisor.

Waits for the order to begin, reports over its lifeline, and ends with one answer: the Environment,
or an error. It dies with the supervisor, and if it is cancelled, removes unfinished files.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from zmqtriton.sdk.models import EnvironmentSpec
from zmqtriton.sdk.process import Lifeline, prctl
from zmqtriton.sdk.wire import InternalError, Kind, Reason, ZmqTritonError, wire
from zmqtriton_standard.environments.cache import EnvironmentCache
from zmqtriton_standard.environments.prepare import prepare_environment
from zmqtriton_standard.environments.reports import LifelineReporter, printable


def main(arguments: list[str]) -> int:
    if len(arguments) != 5 or arguments[0] != "--lifeline":
        sys.stderr.write("usage: --lifeline FD MODEL CACHE DEMAND\n")
        return 2
    prctl.set_name("environments")
    # a setting for the server's processes, not for the model's
    os.environ.pop("PYTHONSAFEPATH", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    line = Lifeline.inherited(int(arguments[1]))
    demand = EnvironmentSpec(*json.loads(arguments[4]))

    # once the broker knows of this process, what is started here dies with the supervisor
    line.wait()
    if line.ended or not line.receive():
        return 1
    reporter = LifelineReporter(line, 0, f"{arguments[2]}.environment")
    try:
        environment = prepare_environment(demand, EnvironmentCache(arguments[3]), reporter)
        answer = wire.CallResult(0, 0, "", json.dumps(environment))
    except ZmqTritonError as error:
        answer = _refusal(error)
    except OSError as error:
        answer = _refusal(InternalError(f"{demand} cannot be prepared: {error}"))
    line.send(answer)
    while line.is_backed_up and not line.ended:
        line.wait(1.0)
    return 0


def _refusal(error: ZmqTritonError) -> wire.CallResult:
    text, reason = printable(error.text), error.reason
    if reason.kind == Kind.OTHER:
        reason = Reason.of(Kind.ENVIRONMENT_FAILED, text, problem=text)
    return wire.CallResult(0, error.number, text, "", reason._replace(text=text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
