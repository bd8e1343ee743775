"""Clients' shared memory: requests for regions, registered regions, and their frontends.

A request names a file, or has the handle of GPU memory. A registration is answered when every
frontend has the region, an unregistration when no frontend uses the region any more, and no model
process has GPU memory open. The service opens and closes the files. Does no I/O.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from zmqtriton.supervisor.actions import CloseRegion, OpenRegion, Send
from zmqtriton.supervisor.control.verbs import OWN_CALLER, ControlCall, RepeatedCall, Verb, Verbs
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.story import All, Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    AlreadyExists,
    InternalError,
    InvalidArgument,
    NotFound,
    Unsupported,
    ZmqTritonError,
)

_DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)
#: Each region costs every frontend a descriptor and a mapping.
MAX_REGIONS = 1024
#: The limit for a file name, and for a segment of a URL.
_MAX_NAME_BYTES = 255
#: Names of Triton's own segments and of semaphores, which no client may write to.
_RESERVED_PREFIXES = ("triton_python_backend_shm_region_", "sem.")
#: The size of a cudaIpcMemHandle_t.
_HANDLE_BYTES = 64
#: Value of `gpu` for memory on the host.
HOST = -1
#: Value of `user` for a client that is on another machine or cannot be identified.
UNKNOWN_USER = -1


class RegionRequest(NamedTuple):
    """A client's registration."""

    name: str
    key: str
    offset: int
    size: int
    #: The number of the GPU that the memory lies on.
    gpu: int = HOST
    #: The name in /dev/shm.
    file: str = ""
    #: Handle of memory on a GPU: processes of models open it with this.
    handle: bytes = b""
    #: User id of the client that registers it; UNKNOWN_USER if it is unknown.
    user: int = UNKNOWN_USER
    #: Error of the registration that is raised even though its memory can be opened.
    problem: ZmqTritonError | None = None

    @property
    def is_on_gpu(self) -> bool:
        return self.gpu != HOST

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of a call that registers the same region."""
        if self.is_on_gpu:
            handle = base64.b64encode(self.handle.partition(b"\0")[2]).decode()
            own = {"kind": "cuda", "device_id": self.gpu, "raw_handle": handle}
        else:
            own = {"key": self.key, "offset": self.offset, "user": self.user}
        return {"name": self.name, "byte_size": self.size, **own}


def read_name(arguments: dict[str, Any]) -> str:
    """Return the name of a region to be registered."""
    name: Any = arguments.get("name")
    if type(name) is not str:
        raise InvalidArgument("a shared memory region needs a name")
    return name


def read_on_host(arguments: dict[str, Any]) -> RegionRequest:
    """Read the registration of a file in /dev/shm.

    As in Triton, the error of memory that cannot be opened comes before all other errors.
    """
    name, key = read_name(arguments), arguments.get("key")
    if type(key) is not str:
        raise InvalidArgument("a shared memory region needs a name and a key")
    file, user = _file_name(key), arguments.get("user", UNKNOWN_USER)
    if type(user) is not int:
        raise InvalidArgument("the user of a client is a number")
    try:
        return RegionRequest(name, key, *_place(name, arguments), file=file, user=user)
    except InvalidArgument as error:
        return RegionRequest(name, key, 0, 0, file=file, user=user, problem=error)


def read_on_gpu(arguments: dict[str, Any], gpus: Container[int]) -> RegionRequest:
    """Read the registration of memory on one of these GPUs.

    Only the form of the handle is checked: only model processes use GPUs.
    """
    name, gpu = read_name(arguments), arguments.get("device_id")
    try:
        raw = base64.b64decode(arguments.get("raw_handle") or "", validate=True)
    except (TypeError, ValueError, binascii.Error):
        raw = b""
    if len(raw) != _HANDLE_BYTES:
        raise InvalidArgument("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    if type(gpu) is not int or gpu not in gpus:
        raise InvalidArgument("failed to register shared memory region: invalid args")
    _, size = _place(name, {**arguments, "offset": 0})
    return RegionRequest(name, "", 0, size, gpu, handle=b"%d\0%b" % (gpu, raw))


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

    A key that is not for clients raises the same error as one that does not exist, so that clients
    cannot find existing names.
    """
    name = key.lstrip("/")
    is_name = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    is_short = len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    if not is_name or not is_short or name.startswith(_RESERVED_PREFIXES):
        raise open_error(key)
    return name


def open_error(key: str) -> InternalError:
    return InternalError(f"Unable to open shared memory region: '{key}'")


@dataclass
class RegisteredRegion:
    number: int
    request: RegionRequest
    is_open: bool = False
    #: True if stubs can map it.
    can_be_mapped: bool = False

    def describe(self) -> dict[str, Any]:
        name, key, offset, size, gpu, *_ = self.request
        if self.request.is_on_gpu:
            return {"name": name, "device_id": gpu, "byte_size": size}
        return {"name": name, "key": key, "offset": offset, "byte_size": size}

    def to_message(self) -> wire.AddRegion:
        name, _, offset, size, gpu, *_ = self.request
        return wire.AddRegion(self.number, name, offset, size, int(self.can_be_mapped), gpu)


@dataclass
class UnregisteredRegion:
    """An unregistered region that requests of frontends may still read or write."""

    request: RegionRequest
    frontends: set[int]
    #: Promise that no frontend uses it any more, and then that no other process does.
    unused: Promise[None] = field(default_factory=Promise)
    released: Promise[None] = field(default_factory=Promise)


class RegionRegistry:
    def __init__(
        self,
        plan: Plan,
        acknowledgements: Acknowledgements,
        peers: Peers,
        *,
        is_allowed: bool,
        gpus: Collection[int] = (),
    ) -> None:
        self._plan = plan
        self._acknowledgements = acknowledgements
        self._frontends = peers
        self._is_allowed = is_allowed
        self._gpus = gpus
        self._has_warned = False
        self._last_number = 0
        #: Registered regions by name, in the order of registration.
        self._regions: dict[str, RegisteredRegion] = {}
        self._unregistered: dict[int, UnregisteredRegion] = {}

    def registration_messages(self) -> list[wire.AddRegion]:
        """Return the messages that announce all regions to a new frontend."""
        return [region.to_message() for region in self._regions.values() if region.is_open]

    def repeated_calls(self) -> list[RepeatedCall]:
        """Return the calls that register these regions at a server that takes over."""
        return [
            ("regions.register", region.request.to_arguments())
            for region in self._regions.values()
            if region.is_open
        ]

    # -------------------------------------------------------------------- calls

    @property
    def verbs(self) -> Verbs:
        return {
            "regions.register": Verb(self._register, goes_over=Verb.the_same),
            "regions.unregister": Verb(self._unregister, goes_over=Verb.the_same),
            "regions.status": Verb(lambda call: self._status(*_kind(call))),
        }

    def _check_allowed(self, caller: int) -> None:
        """Raise the error of a caller that may not change the regions."""
        if caller not in {OWN_CALLER, *self._frontends.serving_serials()}:
            # Otherwise a model could have the frontends write where it cannot.
            raise InvalidArgument("shared memory must be registered by a client")
        if not self._is_allowed:
            if not self._has_warned:  # only once: clients must not fill the log
                self._has_warned = True
                self._plan.log("W", f"refused to register a client's memory. {_DISABLED}")
            raise Unsupported(_DISABLED)

    def _status(self, name: str, is_on_gpu: bool) -> list[dict[str, Any]]:
        listed = [r for r in self._regions.values() if r.is_open and name in ("", r.request.name)]
        rows = [r.describe() for r in listed if r.request.is_on_gpu == is_on_gpu]
        if name and not rows:
            kinds = ("CUDA", "system") if is_on_gpu else ("system", "CUDA")
            if listed:
                raise NotFound(
                    f"The region named '{name}' is registered as {kinds[1]} shared memory, not "
                    f"{kinds[0]} shared memory"
                )
            raise NotFound(f"Unable to find {kinds[0].lower()} shared memory region: '{name}'")
        return rows

    async def _register(self, call: ControlCall) -> None:
        self._check_allowed(call.caller)
        name, is_on_gpu = _kind(call)
        if is_on_gpu and not self._gpus:
            raise InvalidArgument(
                f"failed to register CUDA shared memory region: '{name}', GPUs not supported"
            )
        name = read_name(call.arguments)
        if name in self._regions:
            raise AlreadyExists(f"shared memory region '{name}' already in manager")
        request = (
            read_on_gpu(call.arguments, self._gpus) if is_on_gpu else read_on_host(call.arguments)
        )
        if len(self._regions) + len(self._unregistered) >= MAX_REGIONS:
            raise InvalidArgument(
                f"failed to register shared memory region '{name}': there are {MAX_REGIONS} already"
            )
        self._last_number = number = self._last_number + 1
        region = self._regions[name] = RegisteredRegion(number, request)
        _, key, offset, size, _, file, handle, user, _ = request
        can_be_mapped, problem, is_open = False, request.problem, True
        try:
            can_be_mapped = await self._plan.ask(
                lambda ticket: OpenRegion(
                    ticket, number, name, key, file, offset, size, user, handle
                )
            )
        except ZmqTritonError as error:
            problem, is_open = error, False
        if self._regions.get(name) is not region:
            problem = NotFound(f"shared memory region '{name}' was unregistered")
        elif problem is not None:
            del self._regions[name]
        if problem is not None:
            if is_open:
                self._plan.enqueue(CloseRegion(number))
            raise problem
        region.is_open, region.can_be_mapped = True, can_be_mapped
        frontends = self._frontends.serving_serials()
        self._plan.enqueue(*(Send(serial, region.to_message()) for serial in frontends))
        await self._acknowledgements.sync(frontends)

    def _unregister(self, call: ControlCall) -> Promise[None]:
        """Unregister a region, or all without a name.

        As in Triton, an unknown region counts as unregistered.
        """
        self._check_allowed(call.caller)
        name, is_on_gpu = _kind(call)

        def is_named(request: RegionRequest) -> bool:
            return request.is_on_gpu == is_on_gpu and name in ("", request.name)

        for region in [r for r in self._regions.values() if is_named(r.request)]:
            del self._regions[region.request.name]
            if region.is_open:
                self._plan.tell(self._release(region))
        leaving = [each for each in self._unregistered.values() if is_named(each.request)]
        return All(each.released for each in leaving)

    async def _release(self, region: RegisteredRegion) -> None:
        """Close a region once no frontend uses it."""
        number, frontends = region.number, self._frontends.serving_serials()
        self._plan.enqueue(*(Send(each, wire.RemoveRegion(number)) for each in sorted(frontends)))
        leaving = UnregisteredRegion(region.request, {*frontends})
        self._unregistered[number] = leaving
        if frontends:
            await leaving.unused
        # not before: a stub opens it when the first request that refers to it is executed
        if region.request.is_on_gpu:
            # its client may free it only when no model process has it open
            await self._acknowledgements.sync(await self._plan.ask(partial(CloseRegion, number)))
        else:
            self._plan.enqueue(CloseRegion(number))
        del self._unregistered[number]
        leaving.released()

    # ------------------------------------------------------------ other processes

    def region_released(self, serial: int, number: int) -> None:
        """Handle a frontend's last use of a region; after the last frontend it is closed."""
        leaving = self._unregistered.get(number)
        if leaving is not None:
            leaving.frontends.discard(serial)
            if not leaving.frontends:
                leaving.unused()

    def frontend_died(self, serial: int) -> None:
        """Drop a dead frontend."""
        for number in list(self._unregistered):
            self.region_released(serial, number)


def _kind(call: ControlCall) -> tuple[str, bool]:
    """Return the name of the region, and True if it is on a GPU."""
    return call.arguments.get("name", ""), call.arguments.get("kind") == "cuda"
