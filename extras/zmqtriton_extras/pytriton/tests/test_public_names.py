"""The names and parameters of PyTriton 0.7.0 are there, but those that are listed with a reason."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zmqtriton_extras.pytriton.tests.public_names import MODULES, describe

TABLE: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("public_names.json").read_text("utf-8")
)
_CLIENTS = ("ModelClient", "DecoupledModelClient", "AsyncioModelClient")
_DECORATORS = "batch sample group_by_keys pad_batch triton_context".split()
#: What is missing or called in another way, with the reason.
DIFFERENCES = {
    **{
        f"client.{home}{name}.{method}": "is about tritonclient, which is not there"
        for home in ("", "client.")
        for name in (*_CLIENTS, "AsyncioDecoupledModelClient", "BaseModelClient")
        for method in ("create_client_from_url", "get_lib")
        if home or name != "BaseModelClient"
    },
    **{
        f"client.{home}{name}()": "takes an access_token and, if decoupled, a timeout_scope, too"
        for home in ("", "client.")
        for name in ("DecoupledModelClient", "AsyncioModelClient", "AsyncioDecoupledModelClient")
    },
    "client.asyncio_utils.asyncio_wait_for_model_status_loaded": "a step of another function",
    "client.asyncio_utils.asyncio_wait_for_server_ready": "a step of another function",
    "client.utils.parse_grpc_response": "is about messages of tritonclient",
    "client.utils.parse_http_response": "is about messages of tritonclient",
    "constants.TRITON_PYTHON_BACKEND_INTERPRETER_DIRNAME": "is about a bundled server",
    **{f"decorators.{name}()": "shows wrapt's parameters there" for name in _DECORATORS},
    "model_config.common.generate_warmup_data": "is the inside of the warm-up",
    "model_config.common.generate_warmup_requests": "is the inside of the warm-up",
    "model_config.parser.ModelConfigParser.rewrite_io_spec": "is the inside of the parser",
    **{
        f"triton.{name}.bind()": "may start processes, too"
        for name in ("RemoteTriton", "Triton", "TritonBase")
    },
    "triton.TritonBase()": "is the base of Triton alone",
    "triton.TritonConfig()": "says that it takes names only, which it does there, too",
}


def differences(theirs: Any, ours: Any, name: str) -> Iterator[str]:
    """Name what is missing or is called in another way; more may be there."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        if theirs != ours:
            yield name + ("()" if isinstance(theirs, list) else "")
        return
    for member, description in theirs.items():
        if member == "()":
            yield from differences(description, ours["()"], name)
        elif member in ours:
            yield from differences(description, ours[member], f"{name}.{member}")
        else:
            yield f"{name}.{member}"


def _module_differences(module: str) -> Iterator[str]:
    ours = importlib.import_module(f"zmqtriton.pytriton.{module}")
    for name, description in TABLE[module].items():
        if hasattr(ours, name):
            yield from differences(description, describe(getattr(ours, name)), f"{module}.{name}")
        else:
            yield f"{module}.{name}"


def test_a_script_finds_what_it_imports_and_calls() -> None:
    differences = [difference for module in MODULES for difference in _module_differences(module)]

    assert sorted(DIFFERENCES) == sorted(differences)


def test_the_table_has_every_module() -> None:
    assert sorted(MODULES) == sorted(TABLE)


def test_a_difference_is_found() -> None:
    theirs = {"()": ["a"], "kept": ["b=1"], "changed": ["b=1"], "gone": []}
    ours = {"()": ["a", "c=None"], "kept": ["b=1"], "changed": ["b=2"], "more": []}

    assert ["m.C()", "m.C.changed()", "m.C.gone"] == [*differences(theirs, ours, "m.C")]
