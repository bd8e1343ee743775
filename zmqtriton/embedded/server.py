"""A server that this process starts, calls and ends; it ends with this process at the latest."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zmqtriton import runtime_places
from zmqtriton.control_client import NoServerError, ServerSelector
from zmqtriton.embedded.connection import Connection
from zmqtriton.embedded.guest import Guest
from zmqtriton_floor.errors import InvalidArgument, Unavailable

_LOOK_S = 0.02
#: Options that open no port: only this process sends requests, unless the user opens one.
_NO_PORTS = {"allow_http": False, "allow_grpc": False, "allow_metrics": False}
#: Options of a quiet log: the output belongs to the user's program.
_PROBLEMS_ONLY = {"log_info": False}
#: Options that show the user's interest in the log, so that it is not quiet.
_LOG_OPTIONS = {"log_info", "log_verbose", "log_file"}


class Server(Connection):
    """A server inside this process, as far as its models are concerned.

        with zmqtriton.Server(model_repository="models") as server:
            for response in server.model("add_sub").infer(inputs={"INPUT0": ..., "INPUT1": ...}):
                response.outputs["OUTPUT0"]

    The options are those of `zmqtriton --help`, with underscores. No port is opened unless one of
    `allow_http`, `allow_grpc` and `allow_metrics` is given. The server logs problems only, unless
    an option of the log is given.
    """

    def __init__(self, model_repository: str | Path | Sequence[str | Path], **options: Any) -> None:
        if isinstance(model_repository, str | Path):
            model_repository = [model_repository]
        self._repositories = [*model_repository]
        is_quiet = not _LOG_OPTIONS & options.keys()
        self._options = {**_NO_PORTS, **(_PROBLEMS_ONLY if is_quiet else {}), **options}
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = -1
        #: Directory of the server's sockets; the server makes and removes it itself.
        self.runtime_directory = ""

    @property
    def pid(self) -> int:
        """The number of its first process; 0 while it does not run."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """True while its first process runs."""
        return self._process is not None and self._process.poll() is None

    def start(
        self, *, wait_until_ready: bool = True, timeout_s: float = 120.0, stderr: int | None = None
    ) -> Server:
        """Start the server. Raises Unavailable if it ends, or is not ready in time.

        `stderr` is a descriptor for its log in place of this process's.
        """
        if self._process is not None:
            raise Unavailable("the server has been started already: call stop() first")
        try:
            self.runtime_directory = str(
                runtime_places.preferred() / f"zmqtriton-{secrets.token_hex(8)}"
            )
        except OSError as error:
            raise Unavailable(f"pass a runtime_directory that can be written: {error}") from None
        theirs, self._owner = os.pipe()
        try:
            self._process = subprocess.Popen(
                self._command(theirs),
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(theirs,),
                # Ctrl-C is this process's to answer: the server ends when it is told, or left
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        deadline_s = time.monotonic() + timeout_s
        try:
            self._guest = self._join(deadline_s)
            while wait_until_ready and not (self.ready and self._is_open()):
                self._check(deadline_s)
                time.sleep(_LOOK_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout_s: float = 60.0) -> int:
        """Answer open requests, stop the server and return its exit status."""
        process = self._process
        if process is None:
            return 0
        if hasattr(self, "_guest"):
            self._unbind(timeout_s)
            self._guest.close()
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self._process = None
        return status

    def close(self) -> None:
        self.stop()

    def __enter__(self) -> Server:
        return self if self._process is not None else self.start()

    def _command(self, owner: int) -> list[str]:
        words = [sys.executable, "-m", "zmqtriton"]
        words += [f"--runtime-directory={self.runtime_directory}"]
        words += [f"--owner-descriptor={owner}"]
        return [*words, *_command_words({"model_repository": self._repositories, **self._options})]

    @staticmethod
    def check(options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return warnings about options. Raises InvalidArgument for one that a server refuses."""
        # only now: a server checks its options itself
        from zmqtriton.options import OptionError, parse

        try:
            return parse([*_command_words(options)]).warnings
        except OptionError as error:
            raise InvalidArgument(str(error)) from None

    def _join(self, deadline_s: float) -> Guest:
        while True:
            self._check(deadline_s)
            try:
                return Guest(ServerSelector(self.runtime_directory).connect().line)
            except (NoServerError, Unavailable):
                time.sleep(_LOOK_S)  # it is not there yet, or there no more

    def _is_open(self) -> bool:
        """True once clients can connect, or if the server has no ports."""
        return bool(self.control("is_open"))

    def _check(self, deadline_s: float) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            raise Unavailable(f"the server has ended with {status}; its log says why")
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"the server is not ready in time, raise timeout_s{self._describe_progress()}"
            )

    def _describe_progress(self) -> str:
        """Return the server's own words for what it still lacks; "" before it can be asked."""
        if not hasattr(self, "_guest"):
            return ""
        return f": {self.control('identity')['ready']}"


def _command_words(options: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the words of a command line for options with underscores.

    A list has an option's values.
    """
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            text = str(one).lower() if isinstance(one, bool) else str(one)
            yield f"--{name.replace('_', '-')}={text}"
