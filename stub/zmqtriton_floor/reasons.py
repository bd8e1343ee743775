"""Reasons for the states of versions, instances and processes: their kinds and their values.

A reason is made where the cause is known: in the supervisor, the broker or the stub. It travels as
a row of `wire.py`, so programs read its kind and its values; the text is for people alone. A reason
may have a cause of its own: a version does not serve because its instance was given up, because its
process was killed.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, Iterator, Sequence

from zmqtriton_floor.process.named_tuples import NamedTuple

Name = str  # see wire.py
Text = str  # see wire.py
Values = Dict[str, Any]  # by name: integers, floats and strings
#: The folder of installed libraries, also in an environment below the model's directory.
_PACKAGES = "/site-packages/"


class Kind(str, Enum):
    """A kind of reason, with the names of its values."""

    values: tuple[str, ...]

    def __new__(cls, name: str, *values: str) -> Kind:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.values = values
        return kind

    def __str__(self) -> str:
        return str(self.value)

    #: Anything else: the text says all.
    OTHER = "OTHER"

    # -- it is not to serve
    UNLOADED = "UNLOADED"  # on request
    AWAITS_REQUEST = "AWAITS_REQUEST"  # loaded on demand, and never asked for
    IDLE = "IDLE", "idle_s"  # unloaded after that time without requests
    EVICTED = "EVICTED", "purpose"  # unloaded for the memory
    DRAINING = "DRAINING"
    SERVER_STOPS = "SERVER_STOPS"
    GUEST_LEFT = "GUEST_LEFT"  # the process that has bound it; cause: its end

    # -- what is around another reason, which is its cause
    LAST_LOAD_FAILED = "LAST_LOAD_FAILED"  # what served before serves
    OTHER_VERSION_FAILED = "OTHER_VERSION_FAILED", "versions"  # of the same load
    STUB_LOST = "STUB_LOST", "instance"  # it ended before it was loaded
    RESTARTING = "RESTARTING", "instance", "deaths", "max_deaths"
    GIVEN_UP = "GIVEN_UP", "instance", "deaths", "retry_after_s"  # 0: it is not tried again
    MEMBER_NOT_LOADED = "MEMBER_NOT_LOADED", "member"  # when an ensemble was loaded
    MEMBER_NOT_READY = "MEMBER_NOT_READY", "member"

    # -- repositories
    DUPLICATE = "DUPLICATE"  # two repositories have a model of this name
    NOT_FOUND = "NOT_FOUND", "model", "suggestion"  # "": no name is like it
    NO_VERSION = "NO_VERSION"
    FILE_MISSING = "FILE_MISSING", "path"
    FILE_SPECIAL = "FILE_SPECIAL", "path"  # a pipe, a socket, a device or a loop of links
    REPOSITORY_SILENT = "REPOSITORY_SILENT", "repository"  # it has not answered in time

    # -- configuration
    CONFIG_UNREADABLE = "CONFIG_UNREADABLE", "path", "line", "detail"
    CONFIG_WRONG = "CONFIG_WRONG", "path", "line"
    DIRECTORY_NAME = "DIRECTORY_NAME", "directory", "configured"
    BACKEND_UNKNOWN = "BACKEND_UNKNOWN", "backend"
    GPU_MISSING = "GPU_MISSING"
    GPU_FULL = "GPU_FULL", "gpu"
    TOO_MANY_INSTANCES = "TOO_MANY_INSTANCES", "instances", "limit"
    TOO_FEW_DESCRIPTORS = "TOO_FEW_DESCRIPTORS", "limit"

    # -- environment
    ENVIRONMENT_MISSING = "ENVIRONMENT_MISSING", "path"
    ENVIRONMENT_FAILED = "ENVIRONMENT_FAILED", "problem"
    INTERPRETER_MISSING = "INTERPRETER_MISSING", "python"
    INTERPRETER_FORBIDDEN = "INTERPRETER_FORBIDDEN", "python", "action", "problem"
    INTERPRETER_BROKEN = "INTERPRETER_BROKEN", "python", "problem"

    # -- the model
    EXCEPTION = "EXCEPTION", "exception", "message", "file", "line", "function"

    # -- the end of a process; `output`, if there is some, is what it wrote of that
    EXITED = "EXITED", "status"
    CRASHED = "CRASHED", "signal"  # by itself
    KILLED = "KILLED", "signal"
    REGION_TRUNCATED = (
        "REGION_TRUNCATED",
        "regions",
    )  # clients', which it had mapped; cause: CRASHED
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # of the machine or container: killed by the kernel
    OVER_MEMORY_QUOTA = "OVER_MEMORY_QUOTA", "limit"
    NOT_STARTED = "NOT_STARTED"
    LOAD_TIMEOUT = "LOAD_TIMEOUT", "limit_s"
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT", "limit_s"
    FINALIZE_TIMEOUT = "FINALIZE_TIMEOUT", "limit_s"
    EXIT_TIMEOUT = "EXIT_TIMEOUT"  # told to end, or about to, it did not
    FROZEN = "FROZEN"  # stopped by a signal
    CONNECTION_LOST = "CONNECTION_LOST"
    RESTARTED = "RESTARTED"  # by an operator
    REPLACED_LATE = "REPLACED_LATE"  # a drain had to end it


#: The next request loads the model.
ASLEEP = frozenset({Kind.AWAITS_REQUEST, Kind.IDLE, Kind.EVICTED})
#: Kinds of versions that are not loaded on purpose, so that no operator has to do anything.
AT_REST = ASLEEP | {Kind.UNLOADED}


class Reason(NamedTuple):
    """The reason for a state, such as a failed load; the text includes the cause's text."""

    kind: Name  # one of reasons.py
    values: Values  # what the text is made of
    text: Text
    cause: Reason | None = None  # the reason of this reason

    @classmethod
    def of(cls, kind: Kind, text: str, cause: Reason | None = None, **values: Any) -> Reason:
        return cls(kind, values, text, cause)

    @property
    def chain(self) -> Iterator[Reason]:
        """The reason, its cause, the cause's cause, and so on."""
        reason: Reason | None = self
        while reason is not None:
            yield reason
            reason = reason.cause

    @property
    def innermost(self) -> Reason:
        """The cause without a cause of its own: the one that an operator can do something about."""
        return self if self.cause is None else self.cause.innermost

    def has(self, kind: Kind) -> bool:
        """Return True if the reason or one of its causes is of this kind."""
        return any(reason.kind == kind for reason in self.chain)

    def document(self) -> dict[str, Any]:
        """Return the reason, with its causes, as an object of JSON."""
        cause = {} if self.cause is None else {"cause": self.cause.document()}
        return {"kind": str(self.kind), "values": self.values, "text": self.text, **cause}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Reason:
        """Return the reason from an object that document() has made."""
        cause = document.get("cause")
        inner = None if cause is None else cls.from_document(cause)
        return cls(document["kind"], document["values"], document["text"], inner)


def own_frame(frames: Sequence[Any]) -> Any:
    """Return the innermost frame that is the model's own, and not of a library that it calls.

    The frames have a file, a line and a function, the innermost first; the last is the model's.
    """
    directory = frames[-1][0].rpartition("/")[0] + "/"
    for frame in frames:
        if frame[0].startswith(directory) and _PACKAGES not in frame[0][len(directory) - 1 :]:
            return frame
    return frames[-1]
