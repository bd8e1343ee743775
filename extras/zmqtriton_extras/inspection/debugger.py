"""A debugger in this process: runs in an instance, in the thread of the model that it stops.

Needs nothing but Python's own library, 3.8 and newer, and the floor: a stub loads this file by its
path, for the time of a session. The operator connects to a socket without a file. It accepts users
that the server names, and only with the token that the server has given the operator. If the
model's environment has debugpy, it serves an editor there, else pdb serves a person. When the
operator leaves, is killed or is silent for too long, the model continues.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib
import inspect
import json
import os
import pdb
import socket
import sys
import threading
import time
from _thread import start_new_thread
from types import FrameType
from typing import Any, Sequence

from zmqtriton_floor.sdk import ToolListener

#: The operator's program has this time to come.
_COME_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1
_MOST_BYTES = 1 << 16
#: The beginning of each message of the Debug Adapter Protocol. A browser begins with a method.
EDITOR_BEGINS = b"Content-Length: "
#: Connections that wait until they are accepted.
_BACKLOG = 64


def debug(instance: Any, address: str, token: str, seconds: float, users: Sequence[int]) -> str:
    """Stop the model at its next line of code, and return once the operator has left it."""
    session = _Session(instance, address, token, seconds, users)
    if session.await_operator():
        if session.editor is None:
            session.say("The model stops at its next line, with its next request if it is idle.\n")
            session.stop_threads()
        session.await_end()
    session.end()
    return "ended"


def debug_here(
    instance: Any, frame: FrameType, address: str, token: str, seconds: float, users: Sequence[int]
) -> None:
    """Stop at a `breakpoint()` that this thread has reached."""
    session = _Session(instance, address, token, seconds, users)
    if not session.await_operator():
        session.end()
        return
    if session.editor is not None:
        start_new_thread(session.await_end, ())
    session.stop_in(frame)


def debug_again(instance: Any, frame: FrameType) -> None:
    """Stop at a `breakpoint()` that a thread reaches while there is a session."""
    session: _Session | None = getattr(instance, "debugger", None)
    while session is not None and not session.is_ready and not session.is_over:
        time.sleep(_LOOK_EVERY_S)
    if session is not None and not session.is_over:
        session.stop_in(frame)


class _Session:
    """The conversation of one operator with one thread."""

    def __init__(
        self, instance: Any, address: str, token: str, seconds: float, users: Sequence[int]
    ) -> None:
        """Set up; `users` are the numbers of the users who may command the server."""
        self.instance = instance
        instance.debugger = self
        self._token = token.encode()
        self._seconds = seconds
        self._directories = tuple(f"{one.rstrip('/')}/" for one in instance.directories)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"\0{address}")
        listener.listen(_BACKLOG)
        self._listener = ToolListener(listener, users, self._head)
        self._connection: socket.socket | None = None
        self._received = b""
        self._lock = threading.Lock()
        #: Number of the thread that pdb has stopped; 0 before.
        self.thread = 0
        #: True once an operator is there.
        self.is_ready = False
        self.is_over = False
        self.pdb = _Pdb(self)
        self.editor: _Editor | None = None
        self._pending: Any = None

    # ---------------------------------------------------------------- the operator

    def await_operator(self) -> bool:
        """Return whether an operator has connected with the token; send it the debugger's name."""
        try:
            caller = self._listener.admit(time.monotonic() + _COME_WITHIN_S)
            if caller is None:
                return False
            self._connection, head = caller
            self._connection.settimeout(self._seconds)
            # of a process with other instances debugpy would stop all threads
            if not head.endswith(b" pdb\n") and not self.instance.other_threads():
                self.editor = _editor_of(self, self._connection)
            if self.editor is None:
                self.say("pdb\n")
            self.is_ready = True
        except Exception:  # noqa: BLE001 - no descriptor, or a debugpy that fails: the model goes on
            return False
        return True

    def _head(self, data: bytes) -> int:
        """Return the size of the line with the token; 0 for an incomplete line, -1 for another."""
        line, end, _ = data.partition(b"\n")
        if end and not hmac.compare_digest(line.partition(b" ")[0], self._token):
            return -1
        return len(line) + 1 if end else 0

    def say(self, text: str) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(text.encode("utf-8", "replace"))

    def write(self, text: str) -> None:
        self.say(text)

    def flush(self) -> None:
        """Do nothing: no output is kept back."""

    def readline(self) -> str:
        """Return the operator's next line; "" after a disconnection or a long silence."""
        while b"\n" not in self._received and not self.is_over:
            if self._connection is None:
                return ""
            try:
                data = self._connection.recv(_MOST_BYTES)
            except OSError:
                self.say("\nYou said nothing for too long: the model goes on.\n")
                return ""
            if not data:
                return ""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode("utf-8", "replace") + "\n" if not self.is_over else ""

    def has_left(self) -> bool:
        """Return whether the operator has gone while no thread reads its lines."""
        if self._connection is None:
            return True
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def move(self, frame: FrameType) -> None:
        """Report to the server at which line the model has stopped."""
        self._tell(place=f"{frame.f_code.co_filename}:{frame.f_lineno}")

    def run(self) -> None:
        """Report to the server that the model runs, until it reaches a breakpoint."""
        self._tell(place="")

    def end(self) -> None:
        """Let the model continue, and tell the operator."""
        if self.is_over:
            return
        self.is_over = True
        self.instance.debugger = None
        if self.editor is not None:
            self.editor.end()
        if self._connection is not None:
            if self.editor is None:
                self.say("The model goes on.\n")
            with contextlib.suppress(OSError):  # a process that the model has forked has it, too
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection.close()
        self._tell(is_over=True)

    def _tell(self, **news: Any) -> None:
        call = self.instance.call
        if call is not None:
            with contextlib.suppress(Exception):  # the session matters more than the news of it
                call("debug.at", json.dumps(news))

    # --------------------------------------------------------------------- threads

    def stop_in(self, frame: FrameType) -> None:
        """Stop at the next line of a frame; with pdb, only one thread is stopped."""
        if self.editor is not None:
            self.editor.stop_in(frame)
        elif self.thread in (0, threading.get_ident()):
            self.thread = threading.get_ident()
            self.pdb.stop_in(frame)

    def await_end(self) -> None:
        """Wait until the model continues; it also does if the operator leaves before it stops."""
        deadline_s = time.monotonic() + self._seconds
        while not self.is_over:
            time.sleep(_LOOK_EVERY_S)
            if self.editor is not None:
                has_left = self.editor.has_left(self._seconds)
            else:
                has_left = self.has_left() or time.monotonic() > deadline_s
                has_left = has_left and not self.thread
            if has_left:
                self.end()

    def stop_threads(self) -> None:
        """Let the first thread that reaches a line of the model stop there."""
        trace_all = getattr(sys, "_settraceallthreads", None)  # from 3.12 on
        if trace_all is None:
            self._stop_main_thread()
            return
        trace_all(self._trace)
        sys.settrace(None)
        others = set(self.instance.other_threads())
        for number, frame in sys._current_frames().items():
            if number not in others and number != threading.get_ident():
                self._trace_frames(frame)

    def _stop_main_thread(self) -> None:
        """Let the main thread trace itself, between two of its instructions."""
        import ctypes

        def begin(_: Any) -> int:
            sys.settrace(self._trace)
            self._trace_frames(sys._getframe().f_back)
            return 0

        self._pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(begin)
        ctypes.pythonapi.Py_AddPendingCall(self._pending, None)

    def _trace_frames(self, frame: FrameType | None) -> None:
        while frame is not None:
            if self._is_own(frame):
                frame.f_trace = self._trace
            frame = frame.f_back

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.is_over or self.thread:
            sys.settrace(None)
            return None
        if not self._is_own(frame) or threading.get_ident() in self.instance.other_threads():
            return None
        with self._lock:
            if self.thread:
                return None
            self.thread = threading.get_ident()
        self.pdb.set_trace(frame)
        return self.pdb.trace_dispatch

    def _is_own(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return file.startswith(self._directories) and "/site-packages/" not in file


def _editor_of(session: _Session, connection: socket.socket) -> _Editor | None:
    """Return debugpy, serving an editor on this connection; None if it is not installed."""
    # else it warns that it sees no lines of modules that are compiled into Python
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    hook = sys.breakpointhook
    try:
        api: Any = importlib.import_module("debugpy.server.api")
    except Exception:  # noqa: BLE001 - of packages that are broken, too, pdb needs nothing
        return None
    finally:
        sys.breakpointhook = hook  # debugpy's own waits for nobody
    return _Editor(session, connection, api.pydevd)


class _Editor:
    """debugpy for an editor on the session's connection; opens no port."""

    def __init__(self, session: _Session, connection: socket.socket, pydevd: Any) -> None:
        self._session, self._pydevd = session, pydevd
        self._lock = threading.Lock()
        #: Number of threads that stand.
        self._standing = 0
        connection.sendall(b"debugpy\n")
        # before, the model is not traced, and what debugpy says would have no reader
        if connection.recv(len(EDITOR_BEGINS), socket.MSG_PEEK) != EDITOR_BEGINS:
            raise ConnectionError("no editor has connected in time")
        self._heard_s = time.monotonic()
        stub = os.path.dirname(inspect.getfile(type(session.instance)))
        # in place of a thread that listens at a port
        pydevd.PyDB.create_wait_for_connection_thread = lambda database: None
        self._begin(
            block_until_connected=False,
            # threads of the server must go on while the model's stand
            dont_trace_start_patterns=(f"{os.path.dirname(stub)}/zmqtriton_", __file__),
        )
        self._database = pydevd.get_global_debugger()
        self._database.add_dap_messages_listener(self)
        self._wait = self._database.do_wait_suspend
        self._database.do_wait_suspend = self._stand
        # last: an editor may go on as soon as it has its answers
        self._database.initialize_network(connection, terminate_on_socket_close=False)

    def before_send(self, message: Any) -> None:
        """Do nothing: only the editor's messages count as activity."""

    def after_receive(self, message: Any) -> None:
        self._heard_s = time.monotonic()

    def stop_in(self, frame: FrameType) -> None:
        """Stop at the next line of a frame, once the editor has set its breakpoints."""
        while not self._session.is_over and not self._database.is_attached():
            time.sleep(_LOOK_EVERY_S)
        if not self._session.is_over:
            self._begin(suspend=True, stop_at_frame=frame, trace_only_current_thread=True)

    def _begin(self, *, suspend: bool = False, **how: Any) -> None:
        """Begin to trace all threads, or this one."""
        self._pydevd.settrace(
            "", port=0, suspend=suspend, wait_for_ready_to_run=False, notify_stdin=False, **how
        )

    def has_left(self, seconds: float) -> bool:
        """Return whether the editor has gone, or was silent for this time."""
        is_silent = time.monotonic() > self._heard_s + seconds
        return is_silent or not self._database.reader.is_alive()

    def end(self) -> None:
        # first, or a thread that stands would do so again in the next session
        self._pydevd.PyDevdAPI().request_disconnect(self._database, resume_threads=True)
        self._pydevd.stoptrace()

    def _stand(self, thread: Any, frame: FrameType, *more: Any, **named: Any) -> Any:
        with self._lock:
            self._standing += 1
            is_first = self._standing == 1
        if is_first:
            self._session.move(frame)
        try:
            return self._wait(thread, frame, *more, **named)
        finally:
            with self._lock:
                self._standing -= 1
                is_last = not self._standing
            if is_last:
                self._session.run()


class _Pdb(pdb.Pdb):
    """Python's debugger for a thread that must continue when the operator has gone."""

    def __init__(self, session: Any) -> None:
        super().__init__(stdin=session, stdout=session, nosigint=True, readrc=False)
        self.use_rawinput = False
        self._session = session

    def stop_in(self, frame: FrameType) -> None:
        """Stop at the next line of a frame, and not in the functions that lead back there."""
        self.reset()
        self.botframe: Any = frame
        while self.botframe.f_back is not None:
            self.botframe.f_trace = self.trace_dispatch
            self.botframe = self.botframe.f_back
        self.botframe.f_trace = self.trace_dispatch
        self.set_next(frame)
        sys.settrace(self.trace_dispatch)  # the last call: others would be traced

    def interaction(self, frame: Any, *more: Any, **named: Any) -> None:
        if frame is not None:
            self._session.move(frame)
        super().interaction(frame, *more, **named)

    def set_continue(self) -> None:
        super().set_continue()
        if self.breaks:
            self._session.run()
        else:
            self._session.end()

    def do_quit(self, arg: str) -> bool:
        """Let the model continue: quitting pdb must not end its process."""
        self.clear_all_breaks()
        self.set_continue()
        return True

    do_q = do_exit = do_quit
    do_EOF = do_quit
