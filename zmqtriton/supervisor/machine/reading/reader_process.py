"""A reader: a process that does one task after the other, and answers each.

A copy of the supervisor without its descriptors. It shows no output: an error is an answer.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from zmqtriton.supervisor.machine.processes import process
from zmqtriton.supervisor.machine.processes.process import Process
from zmqtriton.supervisor.machine.reading.plain import dumps, loads
from zmqtriton.supervisor.machine.reading.tasks import ReaderTasks
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline

_NAME = "zmqtriton-reader"


def start_reader(tasks: ReaderTasks) -> tuple[Process, Lifeline]:
    """Start a reader. Raises OSError."""
    return process.start_copy(_NAME, partial(serve, tasks=tasks.by_name))


def serve(line: Lifeline, tasks: Mapping[str, Callable[..., Any]]) -> None:
    """Do each task that comes, until the supervisor closes its end or is dead."""
    # otherwise a collection would write to every object, and copy its page
    gc.freeze()
    while not line.ended:
        line.wait()
        for message, _ in line.receive():
            line.send(answer(message, tasks))


def answer(call: wire.Call, tasks: Mapping[str, Callable[..., Any]]) -> wire.CallResult:
    """Do a task; the document of an unexpected error is its traceback."""
    try:
        result = dumps(tasks[call.verb](*loads(call.arguments)))
    except ZmqTritonError as error:
        return wire.CallResult(call.id, error.number, error.text, "", error.reason)
    except OSError as error:
        return wire.CallResult(call.id, InternalError.number, str(error), "")
    except Exception as error:  # noqa: BLE001 - the edge: the supervisor logs it
        return wire.CallResult(call.id, InternalError.number, str(error), traceback.format_exc())
    return wire.CallResult(call.id, 0, "", result)
