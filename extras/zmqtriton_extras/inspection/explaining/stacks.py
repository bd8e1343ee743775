"""The places in a model's code where its threads are, from the stacks of its processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zmqtriton.sdk.models import places as stack_places

#: Files of Python where a thread waits for work that others give it.
_IDLE = re.compile(r".*/(queue|threading|selectors|asyncio/\w+|concurrent/futures/\w+)\.py$")
_STUB = "/zmqtriton_stub/"
_CALLER = f"{_STUB}model.py"
#: Functions of libraries that wait for work of a GPU.
_GPU_FILES = re.compile(r".*/(torch/(cuda|xpu|mps)\b|cupy|numba/cuda|pycuda|tensorflow|jax)")
_GPU_WAITS = frozenset({"synchronize", "wait", "block_until_ready", "stream_synchronize"})


class Place(NamedTuple):
    #: Words as in ` (model.py, line 8, in execute)`.
    text: str
    #: True in a thread that executes requests, and not in one that the model has started.
    executes: bool
    #: True if it waits in `send()` of a response.
    sends: bool
    waits_for_gpu: bool


def places(stacks: Mapping[str, Sequence[str]], model: str) -> list[Place]:
    """Return the places of the threads at work in the model's code, without idle threads."""
    threads = [stack for lines in stacks.values() for stack in stack_places.stacks_of(lines)]
    return [place for stack in threads for place in _places(stack, model)]


def _places(stack: Sequence[stack_places.Frame], model: str) -> Iterator[Place]:
    """Yield the place of a stack in the model, if it has one; the innermost frame comes first."""
    executes = any(frame.file.endswith(_CALLER) for frame in stack)
    own = next((n for n, frame in enumerate(stack) if _is_own(frame, model)), None)
    if own is None:
        return
    inner = stack[:own]
    if not executes and any(_IDLE.match(frame.file) for frame in inner):
        return
    in_stub = any(frame.file.rfind(_STUB) >= 0 and frame.function == "send" for frame in inner)
    yield Place(stack_places.place_text(*stack[own]), executes, in_stub, _waits_for_gpu(inner))


def _is_own(frame: stack_places.Frame, model: str) -> bool:
    below = re.search(rf"/{re.escape(model)}/\d+/(.+)$", frame.file)
    return below is not None and "site-packages/" not in below[1]


def _waits_for_gpu(frames: Iterable[stack_places.Frame]) -> bool:
    return any(
        frame.function in _GPU_WAITS and _GPU_FILES.match(frame.file) is not None
        for frame in frames
    )
