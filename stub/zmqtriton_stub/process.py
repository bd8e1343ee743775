"""The process around the loop: its name, its signals, its output, and its death.

Each line that a model prints while it serves requests begins with their ids. Lines that do not pass
sys.stdout or sys.stderr, such as lines of C libraries, are unchanged.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import re
import signal
import sys
import threading
import traceback
from _thread import LockType, allocate_lock, start_new_thread
from typing import Any, Callable, Dict, Optional

from zmqtriton_floor import logs, prctl
from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub import ending, instance, tasks
from zmqtriton_stub.api import callers
from zmqtriton_stub.loop import Stub
from zmqtriton_stub.own_process import OwnProcess

#: Signals that a service manager or a terminal sends to all processes of a server, with the
#: handlers of a fresh process.
ORDERLY: Dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_masks = threading.local()
#: The beginning of a line that has any text, behind the end of another.
_LATER_LINE = re.compile(r"(?<=[\r\n])(?=[^\r\n])")


def run(
    lifeline: int, page: int, listener: int, name: str, process: Optional[OwnProcess] = None
) -> int:
    """Run the loop; return the exit status if the process may end normally, else end it."""
    prepare(name)
    take_signals_elsewhere()
    if process is None:
        # models in files have no command line; what a process binds keeps that of the process
        sys.argv[1:] = []
    return live(lambda: make_stub(lifeline, page, listener, process or OwnProcess()))


def make_stub(lifeline: int, page: int, listener: int, process: OwnProcess) -> Stub:
    """Return an instance for this process that shares no connections with forks."""
    progress = ProgressView(page)
    os.close(page)
    os.set_inheritable(listener, False)
    stub = Stub(Lifeline.inherited(lifeline), progress, listener, process)
    instance.on_fork.append(stub.abandon)
    instance.receivers.append(stub.receive)
    return stub


def live(make: Callable[[], Stub]) -> int:
    """Run an instance and return its exit status; an exception ends the process at once."""
    try:
        return make().run()
    except SystemExit as error:
        _die(error.code)
    except BaseException:  # noqa: BLE001 - the last edge: say what it was, then die
        traceback.print_exc()
        _die(1)
    return 1


def prepare(name: str) -> None:
    """Set up a process of one instance or several: its name, its signals, its output."""
    # before anything else: from here on the supervisor's end is ours
    prctl.die_with_parent()
    prctl.set_name(f"stub {name}")
    for number in ORDERLY:
        # not SIG_IGN: programs that the model starts would inherit that
        signal.signal(number, _ignore)
    os.register_at_fork(
        before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_restore_signals
    )
    os.register_at_fork(after_in_child=instance.become_forked)
    attribute()
    watch_for_crashes()
    sys.breakpointhook = stop_at_breakpoint


def watch_for_crashes() -> None:
    """Write the stack to stderr at a crash or at SIGURG, in this process and its forks."""
    faulthandler.enable()
    # For one that is asked where it is: works without Python's help, so also where it hangs. The
    # stacks of threads that run meanwhile cannot be read.
    faulthandler.register(prctl.STACKS_SIGNAL, all_threads=not instance.runs_in_parallel())


def stop_at_breakpoint(*args: Any, **kwargs: Any) -> Any:
    """Let an add-on handle a `breakpoint()`; without one, Python handles it."""
    subject, frame = instance.here(), sys._getframe(1)
    about = {"place": f"{frame.f_code.co_filename}:{frame.f_lineno}"}
    try:
        if subject is None or subject.call is None or "PYTHONBREAKPOINT" in os.environ:
            raise Unavailable("no add-on can be asked")
        code = subject.call("breakpoint", json.dumps(about))
    except ZmqTritonError:
        return sys.__breakpointhook__(*args, **kwargs)
    return code and tasks.execute(code, subject, frame)


def take_signals_elsewhere() -> None:
    """Start the thread for signals, which would interrupt a C call of a model's thread.

    At SIGURG the process writes its stacks; at the other signal the thread reads the supervisor's
    messages. The supervisor finds the thread by its name, and without it signals the process.
    """
    if instance.runs_in_parallel():
        return  # the stacks of other threads cannot be read
    has_begun = allocate_lock()
    has_begun.acquire()
    # Without a thread, at the limit of processes for one, a model is served all the same.
    with contextlib.suppress(RuntimeError):
        start_new_thread(await_signals, (has_begun,))
        has_begun.acquire()  # a process that ends amid a foreign call of a thread may crash
        ending.own_threads = 2


def await_signals(has_begun: LockType) -> None:
    """Wait for signals until this process ends; faulthandler has a C handler for stacks."""
    prctl.set_name(prctl.SIGNAL_THREAD)
    signal.pthread_sigmask(signal.SIG_BLOCK, {prctl.READ_SIGNAL})
    has_begun.release()
    while True:
        signal.sigwait({prctl.READ_SIGNAL})
        instance.receive()


def _ignore(number: int, frame: Any) -> None:
    """Ignore the signal: the supervisor sends Finalize, or kills."""


def _block_signals() -> None:
    # a signal for a child that is not ready for it yet would be ignored
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ORDERLY)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _restore_signals() -> None:
    """Restore the signals, so that children which a model forks end as without the server."""
    for number, handler in ORDERLY.items():
        if signal.getsignal(number) is _ignore:
            signal.signal(number, handler)
    _unblock_signals()


def _die(code: Any) -> None:
    """End at once: a thread of the model must not keep a process that no longer serves."""
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    prctl.flush_output()
    os._exit((code or 0) & 0xFF)


def attribute() -> None:
    """Let the lines that Python code prints in this process begin with their requests' ids."""
    sys.stdout, sys.stderr = _attributed(sys.stdout), _attributed(sys.stderr)


def _attributed(stream: Any) -> Any:
    is_plain = isinstance(stream, io.TextIOWrapper) and type(stream) is not AttributedOutput
    return AttributedOutput(stream) if is_plain else stream


class AttributedOutput(io.TextIOWrapper):
    """A second stream to a stream's file; the first may still be used."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.reconfigure(line_buffering=True)
        # a file of its own: that of the stream may think of what its descriptor was before
        super().__init__(
            open(stream.fileno(), "wb", closefd=False),  # noqa: SIM115 - as long as the process
            encoding=stream.encoding,
            errors=stream.errors,
            # otherwise what was printed last is lost in a crash
            line_buffering=True,
        )
        self._stream = stream
        self._is_at_start = True

    @property
    def name(self) -> str:
        """The name of the stream, such as "<stdout>"."""
        return self._stream.name

    @property
    def mode(self) -> str:
        """The mode of the stream, for libraries that ask for it."""
        return self._stream.mode

    def write(self, text: str) -> int:
        beginning = logs.name_requests(callers.request_ids())
        shown = text
        if beginning and text and isinstance(text, str):  # what is none, super() refuses
            is_within = not self._is_at_start or text[0] in "\r\n"
            shown = ("" if is_within else beginning) + _LATER_LINE.sub(lambda _: beginning, text)
        super().write(shown)
        self._is_at_start = text[-1] in "\r\n" if text else self._is_at_start
        return len(text)
