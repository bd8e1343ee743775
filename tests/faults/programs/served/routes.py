"""The route of a program. It asks the model, and holds some of its answers over later requests.

The body is the number of the call, the number of inputs, and the inputs one after the other, all of
the same length. The answer is the outputs one after the other, with their lengths in a header.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import numpy as np
from arrays import difference

from zmqtriton.routes import Response, route

_PROGRAM = json.loads(Path(__file__).with_name("program.json").read_text())
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_LOOKS = os.open(Path(_PROGRAM["scratch"], "looks"), _FLAGS, 0o666)
_CHANGED = os.open(Path(_PROGRAM["scratch"], "changed"), _FLAGS, 0o666)
_MOST_KEPT = 6
_ANY_CALL = 1 << 32
_kept = []


@route("POST /program")
async def program(request, infer):
    words = np.frombuffer(request.view, np.uint64)
    call, count = int(words[0]), int(words[1])
    inputs = {f"IN{n}": array for n, array in enumerate(np.split(words[2:], count))}
    response = await infer({"CALL": words[:1], **inputs})
    outputs = [response[f"OUT{number}"] for number in range(_PROGRAM["outputs"])]
    _look(call)
    if not random.randrange(3):
        _kept.extend((array, array.copy(), call) for array in outputs)
    body = b"".join(array.tobytes() for array in outputs)
    return Response(body, 200, {"x-lengths": ",".join(str(len(array)) for array in outputs)})


def _look(call):
    for array, copy, of_call in _kept:
        changes = difference(copy, array, _ANY_CALL)
        if changes:
            report = {
                "model": _PROGRAM["name"],
                "place": "a route",
                "of_call": of_call,
                "in_call": call,
                "when": "during a later request",
                "found": changes,
                "ns": time.time_ns(),
            }
            os.write(_CHANGED, json.dumps(report).encode() + b"\n")
    if _kept:
        os.write(_LOOKS, b"." * len(_kept))
    _kept[:] = [one for one in _kept if np.array_equal(one[0], one[1])][-_MOST_KEPT:]
