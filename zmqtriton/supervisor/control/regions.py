"""Clients' shared memory: the registered regions, and the frontends that must know of a change.

A registration is answered when every frontend has the region, an unregistration when none uses it
any more. The service opens and closes the files. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from zmqtriton.supervisor.actions import CloseRegion, OpenRegion, Send
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    AlreadyExists,
    InternalError,
    InvalidArgument,
    NotFound,
    Unsupported,
    ZmqTritonError,
)

#: Gets the result or an error.
Respond = Callable[[Any], None]

_DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)
#: Each region costs every frontend a descriptor and a mapping.
MAX_REGIONS = 1024
#: The limit for a file name, and for a segment of a URL.
_MAX_NAME_BYTES = 255
#: The names of Triton's own segments, and of semaphores: no client may write to those.
_RESERVED_PREFIXES = ("triton_python_backend_shm_region_", "sem.")


class RegionRequest(NamedTuple):
    """A client's registration."""

    name: str
    key: str
    offset: int
    size: int


@dataclass
class Region:
    number: int
    request: RegionRequest
    respond: Respond
    #: What is wrong with the registration though its memory can be opened.
    problem: ZmqTritonError | None = None
    is_open: bool = False
    #: By stubs.
    can_be_mapped: bool = False

    def describe(self) -> dict[str, Any]:
        name, key, offset, size = self.request
        return {"name": name, "key": key, "offset": offset, "byte_size": size}

    def to_message(self) -> wire.AddRegion:
        name, _, offset, size = self.request
        return wire.AddRegion(self.number, name, offset, size, int(self.can_be_mapped))


@dataclass
class UnregisteredRegion:
    """An unregistered region that requests of frontends may still read or write."""

    name: str
    frontends: set[int]
    on_released: list[Callable[[], None]] = field(default_factory=list)


class RegionRegistry:
    def __init__(
        self,
        plan: Plan,
        acknowledgements: Acknowledgements,
        frontends: Callable[[], Collection[int]],
        *,
        is_allowed: bool,
    ) -> None:
        self._plan = plan
        self._acknowledgements = acknowledgements
        self._frontend_serials = frontends
        self._is_allowed = is_allowed
        self._has_warned = False
        self._last_number = 0
        #: By name, in the order of registration.
        self._regions: dict[str, Region] = {}
        self._unregistered: dict[int, UnregisteredRegion] = {}

    def registration_messages(self) -> list[wire.AddRegion]:
        """Return the messages that tell a new frontend of all regions."""
        return [region.to_message() for region in self._regions.values() if region.is_open]

    # -------------------------------------------------------------------- calls

    @property
    def verbs(self) -> Verbs:
        return {
            "regions.register": Verb(self._handle_register),
            "regions.unregister": Verb(self._handle_unregister),
            "regions.status": Verb(lambda call: call.answer(self._status(*_kind(call)))),
        }

    def _check_allowed(self, caller: int) -> None:
        """Raise the error of a caller that may not change the regions."""
        if caller not in self._frontend_serials():
            # Otherwise a model could have the frontends write where it cannot.
            raise InvalidArgument("only clients register shared memory")
        if not self._is_allowed:
            if not self._has_warned:  # only once: clients must not fill the log
                self._has_warned = True
                self._plan.log("W", f"refused to register a client's memory. {_DISABLED}")
            raise Unsupported(_DISABLED)

    def _handle_register(self, call: ControlCall) -> None:
        self._check_allowed(call.caller)
        name, is_cuda = _kind(call)
        if is_cuda:
            text = f"failed to register CUDA shared memory region: '{name}', GPUs not supported"
            raise InvalidArgument(text)
        self._register(call.arguments, call.answer)

    def _handle_unregister(self, call: ControlCall) -> None:
        self._check_allowed(call.caller)
        name, is_cuda = _kind(call)
        self._unregister(name, call.answer, is_cuda)

    def _status(self, name: str, is_cuda: bool) -> list[dict[str, Any]]:
        listed = [r for r in self._regions.values() if r.is_open and not is_cuda]
        rows = [r.describe() for r in listed if name in ("", r.request.name)]
        if name and not rows:
            kind = "cuda" if is_cuda else "system"
            raise NotFound(f"Unable to find {kind} shared memory region: '{name}'")
        return rows

    def _register(self, arguments: dict[str, Any], answer: Respond) -> None:
        """Register a region.

        As in Triton, memory that cannot be opened is told before what else is wrong.
        """
        name, key = _texts(arguments)
        if name in self._regions:
            raise AlreadyExists(f"shared memory region '{name}' already in manager")
        file = _file_name(key)
        if len(self._regions) + len(self._unregistered) >= MAX_REGIONS:
            raise InvalidArgument(
                f"failed to register shared memory region '{name}': there are {MAX_REGIONS} already"
            )
        problem: ZmqTritonError | None = None
        try:
            offset, size = _place(name, arguments)
        except InvalidArgument as error:
            problem, offset, size = error, 0, 0
        self._last_number = number = self._last_number + 1
        ticket = self._plan.expect(partial(self._on_opened, number))
        request = RegionRequest(name, key, offset, size)
        self._regions[name] = Region(number, request, answer, problem)
        self._plan.enqueue(OpenRegion(ticket, number, name, key, file, offset, size))

    def _on_opened(self, number: int, opened: ZmqTritonError | bool) -> None:
        error = opened if isinstance(opened, ZmqTritonError) else None
        region = next((r for r in self._regions.values() if r.number == number), None)
        if region is None:  # unregistered in the meantime
            self._plan.enqueue(CloseRegion(number))
        elif error is not None or region.problem is not None:
            del self._regions[region.request.name]
            if error is None:
                self._plan.enqueue(CloseRegion(number))
            region.respond(error or region.problem)
        else:
            region.is_open, region.can_be_mapped = True, opened is True
            frontends = self._frontend_serials()
            self._plan.enqueue(*(Send(serial, region.to_message()) for serial in frontends))
            self._acknowledgements.sync(frontends, lambda: region.respond(None))

    def _unregister(self, name: str, answer: Respond, is_cuda: bool) -> None:
        """Unregister a region, or all without a name.

        As in Triton, an unknown region counts as unregistered already.
        """
        if is_cuda:
            answer(None)
            return
        for region in [r for r in self._regions.values() if name in ("", r.request.name)]:
            del self._regions[region.request.name]
            if region.is_open:
                self._begin_release(region)
            else:
                region.respond(NotFound(f"shared memory region '{name}' was unregistered"))
        waiting = [leaving for leaving in self._unregistered.values() if name in ("", leaving.name)]
        left = len(waiting)

        def one_has_ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                answer(None)

        for leaving in waiting:
            leaving.on_released.append(one_has_ended)
        if not waiting:
            answer(None)

    def _begin_release(self, region: Region) -> None:
        users = set(self._frontend_serials())
        self._plan.enqueue(
            *(Send(serial, wire.RemoveRegion(region.number)) for serial in sorted(users))
        )
        if users:
            self._unregistered[region.number] = UnregisteredRegion(region.request.name, users)
        else:
            self._plan.enqueue(CloseRegion(region.number))

    # ---------------------------------------------------------------- frontends

    def region_released(self, serial: int, number: int) -> None:
        """Note that a frontend neither reads nor writes the region any more."""
        leaving = self._unregistered.get(number)
        if leaving is None:
            return
        leaving.frontends.discard(serial)
        if not leaving.frontends:
            del self._unregistered[number]
            # not before: a stub opens it when the first request that refers to it is executed
            self._plan.enqueue(CloseRegion(number))
            for answer in leaving.on_released:
                answer()

    def frontend_died(self, serial: int) -> None:
        """Drop a dead frontend."""
        for number in list(self._unregistered):
            self.region_released(serial, number)


def _kind(call: ControlCall) -> tuple[str, bool]:
    """Return the name of the region, and whether it is on a GPU."""
    return call.arguments.get("name", ""), call.arguments.get("kind") == "cuda"


def _texts(arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the key of a registration."""
    name: Any = arguments.get("name")
    key: Any = arguments.get("key")
    if type(name) is not str or type(key) is not str:
        raise InvalidArgument("a shared memory region needs a name and a key")
    return name, key


def _place(name: str, arguments: dict[str, Any]) -> tuple[int, int]:
    """Return the offset and the size of a region with this name."""
    if not 0 < len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES:
        raise InvalidArgument("the name of a shared memory region must have 1 to 255 bytes")
    offset: Any = arguments.get("offset")
    size: Any = arguments.get("byte_size")
    is_number = type(offset) is int and type(size) is int
    if not is_number or offset < 0 or size <= 0 or offset + size >= 2**63:
        raise InvalidArgument(f"failed to register shared memory region '{name}': invalid args")
    return offset, size


def _file_name(key: str) -> str:
    """Return the file name that shm_open() would open for this key.

    A key that is not for clients raises the same error as one that does not exist, so that nobody
    can find out which names exist.
    """
    name = key.lstrip("/")
    is_name = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    is_short = len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    if not is_name or not is_short or name.startswith(_RESERVED_PREFIXES):
        raise open_error(key)
    return name


def open_error(key: str) -> InternalError:
    return InternalError(f"Unable to open shared memory region: '{key}'")
