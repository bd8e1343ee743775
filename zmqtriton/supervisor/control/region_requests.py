"""Clients' requests to register shared memory, read and checked.

A request names a file, or has the handle of memory on a GPU. Opens neither.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Container
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError

#: The limit for a file name, and for a segment of a URL.
_MAX_NAME_BYTES = 255
#: The names of Triton's own segments, and of semaphores: no client may write to those.
_RESERVED_PREFIXES = ("triton_python_backend_shm_region_", "sem.")
#: The size of a cudaIpcMemHandle_t.
_HANDLE_BYTES = 64
#: In place of the number of a GPU.
HOST = -1
#: In place of the number of a user: the client is not on this machine, or that cannot be told.
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
    #: Of memory on a GPU: by which processes of models open it.
    handle: bytes = b""
    #: Who registers it; UNKNOWN_USER if nobody knows.
    user: int = UNKNOWN_USER
    #: What is wrong with the registration though its memory can be opened.
    problem: ZmqTritonError | None = None

    @property
    def is_on_gpu(self) -> bool:
        return self.gpu != HOST

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of a call that registers the same."""
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

    As in Triton, memory that cannot be opened is told before what else is wrong.
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

    The handle is judged by its form: no process but a model's has to do with a GPU.
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
