"""NVIDIA's own clients and ours against our server: the same calls come to the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server
from zmqtriton_extras.pytriton.tests.system import client_calls

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "add_sub",
            "string_upper",
            "identity_fp32",
            "tokens",
            "raising",
            "scripted",
            "journal",
        ],
        options=[
            "--model-control-mode=explicit",
            "--load-model=*",
            "--http-header-forward-pattern=x-.*",
            "--grpc-header-forward-pattern=x-.*",
            "--http-restricted-api=model-repository:triton-access-token=secret",
            "--grpc-restricted-protocol=model-repository:triton-access-token=secret",
        ],
        frontends=("grpc",),
    ),
]

_TEXT = "only the text: theirs has a slip"
_CHECKED = "checked before it is sent"
_OWN_ERROR = "the same text in an error of the clients; theirs is tritonclient's"
_WAITS = "waited for as over HTTP; theirs raises what the server answers to the first question"
#: Calls that come to something else, by what follows the protocol, with the reason.
DIFFERENT = {
    "ModelClient: str objects": _TEXT,
    "ModelClient: too many inputs": "refused; theirs drops the last ones",
    "ModelClient: no datatype": _CHECKED,
    "ModelClient: a list": _CHECKED,
    "AsyncioModelClient: a list": _CHECKED,
    "AsyncioModelClient: decoupled": "names the class that there is",
    "ModelClient: load without a token": _OWN_ERROR,
    "ModelClient: load unknown": _OWN_ERROR,
}
DIFFERENT_OVER_HTTP = {
    "ModelClient: slow": _TEXT,
}
DIFFERENT_OVER_GRPC = {
    "ModelClient: unknown model": _WAITS,
    "ModelClient: unknown model at once": _WAITS,
    "ModelClient: wait for unknown": _WAITS,
    "FuturesModelClient: unknown": _WAITS,
    "ModelClient: from_existing_client": "theirs asks the gRPC port over HTTP",
    "DecoupledModelClient: stream": "theirs drops a response that is sent with the final flag",
    "DecoupledModelClient: parameters": "sent; theirs refuses them",
    "AsyncioDecoupledModelClient: slow": "only the text: theirs names the wait",
}
#: Parsed by both, and theirs has no host.
DIFFERENT_URLS = {"url ''"}


def _outcomes(python: str | Path, package: str, server: Server, directory: Path) -> dict[str, Any]:
    """The outcomes of the program under this Python."""
    command = [
        str(python),
        client_calls.__file__,
        package,
        server.url,
        f"grpc://{server.grpc_address}",
    ]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.row("J50")
def test_nvidias_clients_and_ours_come_to_the_same(
    server: Server, python_with_pytriton: Path, tmp_path: Path
) -> None:
    ours = _outcomes(sys.executable, "zmqtriton.pytriton", server, tmp_path)
    theirs = _outcomes(python_with_pytriton, "pytriton", server, tmp_path)

    expected = DIFFERENT_URLS | {
        f"{protocol} {name}"
        for protocol, more in (("http", DIFFERENT_OVER_HTTP), ("grpc", DIFFERENT_OVER_GRPC))
        for name in DIFFERENT | more
    }
    different = {name for name in theirs if ours[name] != theirs[name]}
    report = {name: (ours[name], theirs[name]) for name in different ^ expected}
    assert {} == report
    assert ours.keys() == theirs.keys()
    assert len(theirs) > 200
    late = "http ModelClient: late for the server"
    assert "'PyTritonClientTimeoutError True'" == ours[late] == theirs[late]
