"""A process for the chat templates of one model: `python -m zmqtriton_extras.openai.templates`.

Started by children.py, which ends it if a template takes too long. Requests come on standard input,
answers go to standard output; nothing else can be opened here, and memory is limited. If a user is
given, which is the model's, the process runs as that user.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from collections.abc import Sequence
from typing import Any

from zmqtriton.sdk.process import prctl
from zmqtriton.sdk.wire import InternalError, ZmqTritonError
from zmqtriton_extras.openai import templates
from zmqtriton_extras.openai.templates import LENGTH_BYTES, OUTCOMES, READY

#: Maximum bytes of address space; an interpreter with Jinja takes a tenth of it.
MEMORY_BYTES = 512 << 20
_WARM = "{% for m in messages %}{{ m | tojson }}{{ strftime_now('%Y') }}{% endfor %}{{ 1 / 0 }}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_extras.openai.templates")
    parser.add_argument("--parent", type=int, required=True, metavar="PID")
    parser.add_argument("--user", type=int, nargs=2, metavar=("UID", "GID"))
    options = parser.parse_args(arguments)
    prctl.set_name("zmqtriton-chat")
    _load()
    if options.user is not None:  # who may not read these files
        uid, gid = options.user
        prctl.become_user(uid, gid, [gid], {})
    prctl.die_with(options.parent)
    _limit()
    _write(READY)
    while (request := _read()) is not None:
        outcome, text = _render(request)
        data = bytes([OUTCOMES.index(outcome)]) + text.encode("utf-8", "replace")
        _write(len(data).to_bytes(LENGTH_BYTES, "little") + data)
    return 0


def _load() -> None:
    """Import what a template may need, while files can still be opened."""
    try:
        import jinja2.debug  # noqa: F401
    except ImportError:
        return  # each request will be told
    try:
        templates.render("", _WARM, [{}], "")
    except templates.RefusedChatError:
        pass  # it shows how errors are made, too


def _limit() -> None:
    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, 3),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


def _render(request: dict[str, Any]) -> tuple[str, str]:
    """Return the outcome, and the prompt or the reason of the failure."""
    try:
        prompt = templates.render(**request)
        if len(prompt) <= templates.MAX_BYTES // 4:
            return "prompt", prompt
        why = "makes too long a prompt"
    except templates.RefusedChatError as error:
        return "messages", str(error)
    except InternalError as error:
        return "internal", error.text
    except ZmqTritonError as error:
        return type(error).__name__, error.text
    except MemoryError:
        why = "takes too much memory"
    return "internal", f"the chat template of model '{request['model']}' {why}"


def _read() -> dict[str, Any] | None:
    """Return a request; None at the end of requests."""
    length = _read_exactly(LENGTH_BYTES)
    data = _read_exactly(int.from_bytes(length, "little")) if length else b""
    return json.loads(data) if data else None


def _read_exactly(size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = os.read(0, min(size - len(data), 1 << 20))
        if not part:
            return b""
        data += part
    return bytes(data)


def _write(data: bytes) -> None:
    with memoryview(data) as left:
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
