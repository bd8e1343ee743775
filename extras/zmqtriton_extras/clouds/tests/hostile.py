"""Hostile documents at the ports of SageMaker and Vertex AI."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

from tests.faults.attacks.hostile import VICTIM, Attack, House, drawn, member, send
from tests.support.server import Server, free_ports

_SAGEMAKER, _VERTEX = free_ports(2)
_DOORS = {
    "/invocations": _SAGEMAKER,
    "/models": _SAGEMAKER,
    f"/models/{VICTIM}": _SAGEMAKER,
    f"/models/{VICTIM}/invoke": _SAGEMAKER,
    "/predict": _VERTEX,
}


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    for path, port in _DOORS.items():
        for _ in range(2):
            name, text = drawn(chance)
            body = chance.choice((text, member("url", text)))
            sending = functools.partial(send, port, path, body)
            yield Attack(f"cloud {path}", name, len(body), sending)


HOUSE = House(
    attacks,
    lambda _: (
        "--allow-sagemaker=true",
        f"--sagemaker-port={_SAGEMAKER}",
        "--allow-vertex-ai=true",
        f"--vertex-ai-port={_VERTEX}",
        f"--vertex-ai-default-model={VICTIM}",
    ),
    {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": VICTIM,
        "AIP_PREDICT_ROUTE": "/predict",
        "AIP_HEALTH_ROUTE": "/health",
    },
)
