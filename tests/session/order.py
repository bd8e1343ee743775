"""The order of the tests: what takes long first, or what `--order-seed` decides.

A failure under a seed is repeated by the same seed with fewer files or tests: what is left out
does not change the order of the others.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

import pytest

#: Tests, by the beginning of their path, that take seconds or start processes: with --quick they
#: are not even collected.
SLOW = (
    *("system/", "faults/", "conformance/", "deploy/", "peers/", "protos/", "repo/"),
    *("addons/fleet/announcing/test_places.py", "addons/fleet/proxies/"),
    *("addons/pytriton/decorators/test_rows.py", "addons/pytriton/test_checks.py"),
    "addons/tools/benching/test_plan_run.py",
    *(f"addons/tools/checking/test_{name}.py" for name in ("command", "loads", "repositories")),
    *("addons/tools/doctor/", "addons/tools/new_model/", "addons/tools/run/"),
    *("addons/tools/demo/", "addons/tools/examples/", "addons/tools/testing/"),
    "addons/web_apis/openai/test_description.py",
    "tracing/test_open_telemetry.py",
    *("broker/simulation/", "broker/test_timers.py"),
    *("command_line/", "environments/", "floor/test_mappings.py", "repository/test_scan.py"),
    *("frontends/gateway/test_pending_request.py", "frontends/gateway/test_streams.py"),
    "frontends/process/test_imports.py",
    *("frontends/entrance/test_shadows.py", "frontends/http1/test_other_parsers.py"),
    *("frontends/grpc_api/test_", "frontends/grpc_api/transport/"),
    "frontends/http_api/control/test_description.py",
    "frontends/http_api/control/test_pages.py",
    "frontends/http_api/control/test_status.py",
    "frontends/http_api/inference/test_json_documents.py",
    "frontends/http_api/server/",
    *("stub/api/test_dlpack.py", "stub/broker/", "stub/execution/test_streams.py"),
    *("stub/memory/test_gpu_memory.py", "stub/test_fork_server.py", "stub/test_process.py"),
    *("supervisor/machine/processes/", "supervisor/test_steered_days.py"),
    "support/test_leaks.py",
)
#: Those that several processes begin with, by the beginning of their path: files that take long, or
#: wait for long. Of what is short the processes end at nearly the same time.
FIRST = (
    *("system/replacements/", "system/docs/"),
    *("system/model_api/test_memory.py", "system/faults/", "conformance/", "system/attacks/"),
    *("system/", "command_line/", "environments/"),
    *SLOW,
)
_TESTS = Path(__file__).resolve().parent.parent


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--order-seed")
    return f"order seed: {seed}" if seed else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--quick") or _TESTS not in collection_path.parents:
        return None
    path = collection_path.relative_to(_TESTS).as_posix()
    return is_slow(f"{path}/" if collection_path.is_dir() else path) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort before pytest puts those together that share the value of a fixture."""
    if seed := config.getoption("--order-seed"):
        items.sort(
            key=lambda item: (_draw(seed, item.nodeid.partition("::")[0]), _draw(seed, item.nodeid))
        )
    elif "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _turn(item.path))


def is_slow(path: str) -> bool:
    """True for a path below tests/ that --quick leaves out."""
    return _place(path).startswith(SLOW)


def _place(path: str) -> str:
    """Return a path below tests/; those of an add-on with real processes are system tests, too."""
    return re.sub("^addons/[a-z_]+/(?=system/|conformance/)", "", path)


@cache
def _turn(path: Path) -> tuple[int, str]:
    """Return what sorts files alike in all processes, whichever of them each has begun with."""
    name = path.relative_to(_TESTS).as_posix()
    place = _place(name)
    turns = (turn for turn, first in enumerate(FIRST) if place.startswith(first))
    return next(turns, len(FIRST)), name


def _draw(seed: str, name: str) -> bytes:
    return hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
