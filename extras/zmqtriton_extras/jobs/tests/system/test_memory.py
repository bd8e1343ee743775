"""The process of jobs gives back the memory of what it has kept for clients."""

from __future__ import annotations

import pytest

from tests.support.process_memory import uss_mib
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ask, ended

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=["identity_fp32"], options=["--jobs"], frontends=()),
]

_COUNT = 2_000_000
_BODY = (
    b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":[' % _COUNT
    + b"0.1234," * (_COUNT - 1)
    + b"1]}]}"
)


def test_memory_of_large_jobs_goes_back_to_the_kernel(server: Server) -> None:
    before = uss_mib(server, "jobs")
    for _ in range(3):
        reply = ask(
            server,
            "/v2/models/identity_fp32/infer",
            _BODY,
            {"Prefer": "respond-async", "Content-Type": "application/json"},
        )
        assert "succeeded" == ended(server, reply.document["id"])["state"]

    eventually(lambda: uss_mib(server, "jobs") < before + 24, 60)
