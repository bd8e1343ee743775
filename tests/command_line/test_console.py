"""The log on a console, under systemd, and without standard streams."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from zmqtriton.console import (
    BackendRow,
    ModelRow,
    backend_config,
    backend_table,
    keepalive_table,
    model_table,
    option_table,
    repository_agent_table,
    table,
)
from zmqtriton.options import parse
from zmqtriton.systemd import Notifier, notifier_from_environment, passed_sockets

# ----------------------------------------------------------------------------- console
# The tables against what Triton prints for the same data.


EXTENSIONS = (
    "classification sequence model_repository model_repository(unload_dependents) schedule_policy "
    "model_configuration system_shared_memory cuda_shared_memory binary_tensor_data parameters "
    "statistics trace logging"
).split()


def test_a_table_without_rows_is_its_header() -> None:
    expected = """\
+------------------+------+
| Repository Agent | Path |
+------------------+------+
+------------------+------+"""

    assert expected == repository_agent_table()


@pytest.mark.row("I09")
def test_models_are_sorted_by_name_and_version() -> None:
    models = [
        ModelRow("preprocessing", "1", "READY"),
        ModelRow("core", "10", "READY"),
        ModelRow("core", "9", "UNAVAILABLE: unloaded"),
        ModelRow("noversion", "-", "Not loaded: No model version was found"),
    ]
    expected = """\
+---------------+---------+----------------------------------------+
| Model         | Version | Status                                 |
+---------------+---------+----------------------------------------+
| core          | 9       | UNAVAILABLE: unloaded                  |
| core          | 10      | READY                                  |
| noversion     | -       | Not loaded: No model version was found |
| preprocessing | 1       | READY                                  |
+---------------+---------+----------------------------------------+"""

    assert expected == model_table(models)


@pytest.mark.row("I11", "--pinned-memory-pool-byte-size")
def test_options_fill_a_terminal_of_a_hundred_columns_as_triton_does() -> None:
    options = parse(
        ["--model-repository=/models", "--model-control-mode=explicit", "--load-model=*"]
    )
    expected = """\
+----------------------------------+--------------------------------------------------------------+
| Option                           | Value                                                        |
+----------------------------------+--------------------------------------------------------------+
| server_id                        | triton                                                       |
| server_version                   | 0.1.0                                                        |
| server_extensions                | classification sequence model_repository model_repository(un |
|                                  | load_dependents) schedule_policy model_configuration system_ |
|                                  | shared_memory cuda_shared_memory binary_tensor_data paramete |
|                                  | rs statistics trace logging                                  |
| model_repository_path[0]         | /models                                                      |
| model_control_mode               | MODE_EXPLICIT                                                |
| startup_models_0                 | *                                                            |
| strict_model_config              | 0                                                            |
| model_config_name                |                                                              |
| rate_limit                       | OFF                                                          |
| pinned_memory_pool_byte_size     | 268435456                                                    |
| min_supported_compute_capability | 6.0                                                          |
| strict_readiness                 | 1                                                            |
| exit_timeout                     | 30                                                           |
| cache_enabled                    | 0                                                            |
+----------------------------------+--------------------------------------------------------------+"""

    assert expected == option_table(options, version="0.1.0", extensions=EXTENSIONS, width=100)


@pytest.mark.row("I11", "--cuda-memory-pool-byte-size")
def test_options_name_each_repository_and_gpu() -> None:
    options = parse(
        [
            "--model-repository=/a",
            "--model-repository=/b",
            "--cuda-memory-pool-byte-size=1:1024",
            "--cache-config=local,size=1",
            "--rate-limit=execution_count",
            "--disable-auto-complete-config",
        ]
    )

    text = option_table(options, version="0.1.0", extensions=[], gpus=[0, 1])

    rows = {
        name.strip(): value.strip()
        for name, value in (line.strip("|").split("|") for line in text.splitlines() if "|" in line)
    }
    expected = {
        "model_repository_path[0]": "/a",
        "model_repository_path[1]": "/b",
        "cuda_memory_pool_byte_size{0}": "67108864",
        "cuda_memory_pool_byte_size{1}": "1024",
        "model_control_mode": "MODE_NONE",
        "rate_limit": "EXEC_COUNT",
        "strict_model_config": "1",
        "cache_enabled": "1",
    }
    assert expected == {name: rows[name] for name in expected}


@pytest.mark.row("I10")
def test_backends_wrap_only_what_is_too_wide_for_its_share() -> None:
    """The widths are those of the guide's log, on a terminal of 177 columns."""
    config = (
        '{"cmdline":{"auto-complete-config":"true","backend-directory":"/opt/tritonserver/backends",'
        '"min-compute-capability":"6.000000","default-max-batch-size":"4"}}'
    )
    path = "/opt/tritonserver/backends/pytorch/libtriton_pytorch.so"

    lines = backend_table([BackendRow("pytorch", path, config)], width=177).splitlines()

    assert [0, 10, 68, 174] == [column for column, sign in enumerate(lines[0]) if sign == "+"]
    assert lines[3].endswith('"min-compute |')
    assert lines[4].startswith("|         |  ")
    assert config == "".join(line[70:173].strip() for line in lines[3:5])


@pytest.mark.row("I10")
def test_the_settings_of_a_backend_are_json_in_order() -> None:
    options = parse(["--model-repository=/m", "--backend-config=python,thread-pool-size=8"])

    assert (
        '{"cmdline":{"auto-complete-config":"true",'
        '"backend-directory":"/opt/tritonserver/backends",'
        '"min-compute-capability":"6.000000","default-max-batch-size":"4",'
        '"thread-pool-size":"8"}}'
    ) == backend_config(options, "python")


@pytest.mark.row("I12")
def test_keepalive_options_are_those_of_the_guide() -> None:
    expected = """\
+----------------------------------------------+---------+
| GRPC KeepAlive Option                        | Value   |
+----------------------------------------------+---------+
| keepalive_time_ms                            | 7200000 |
| keepalive_timeout_ms                         | 20000   |
| keepalive_permit_without_calls               | 0       |
| http2_max_pings_without_data                 | 2       |
| http2_min_recv_ping_interval_without_data_ms | 300000  |
| http2_max_ping_strikes                       | 2       |
+----------------------------------------------+---------+"""

    assert expected == keepalive_table(parse(["--model-repository=/m"]))


@pytest.mark.parametrize("width", [1, 10, 20, 40, 80, 200])
def test_no_width_loses_a_character(width: int) -> None:
    cell = "abcdefghijklmnopqrstuvwxyz" * 3

    lines = table(("Model", "Status"), [("m", cell)], width).splitlines()

    assert 1 == len({len(line) for line in lines})
    assert cell == "".join(line.split("|")[2].strip() for line in lines[1:] if "|" in line)[6:]
    if width >= 20:
        assert len(lines[0]) <= width


def test_lines_of_a_cell_stay_lines_and_control_characters_do_not() -> None:
    expected = """\
+--------+
| Status |
+--------+
| one    |
|  two   |
+--------+"""

    assert expected == table(("Status",), [("one\n\x1btwo",)])


# -------------------------------------------------------------------- standard streams
# Standard streams that are closed: what is opened later would get their numbers.


#: Reports what the three descriptors are, and whether Python has its streams.
_REPORT = """
import json, os, sys
from zmqtriton import standard_output
standard_output.open_closed()
streams = [sys.stdin, sys.stdout, sys.stderr]
places = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
inherited = [os.get_inheritable(number) for number in range(3)]
print("unread", file=sys.stdout, flush=True)
print("unread", file=sys.stderr, flush=True)
with open(sys.argv[1], "w") as file:
    json.dump([places, inherited, [each.fileno() for each in streams]], file)
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_null_devices_take_the_place_of_closed_streams(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    report, output = tmp_path / "report", tmp_path / "output"
    closing = " ".join(f"{number}>&-" for number in closed)
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-c", _REPORT]
    with output.open("wb") as file:
        subprocess.run(
            [*command, str(report)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=True,
        )

    places, inherited, numbers = json.loads(report.read_text())
    assert [number in closed for number in range(3)] == [place == os.devnull for place in places]
    assert ([True] * 3, [0, 1, 2]) == (inherited, numbers)
    # What is open stays what it is.
    assert output.read_text().count("unread") == 2 - len({1, 2} & set(closed))


# ----------------------------------------------------------------------------- systemd


@pytest.mark.parametrize(
    ("environment", "beat_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, None),
        ({"NOTIFY_SOCKET": "/x"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000"}, 1.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 1.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "600000000"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, 10.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, 10.0),
    ],
)
def test_the_environment_says_who_listens_and_how_often(
    environment: Mapping[str, str], beat_s: float | None
) -> None:
    assert beat_s == notifier_from_environment(environment, pid=7).heartbeat_s


@pytest.mark.parametrize("is_abstract", [False, True])
def test_what_is_said_arrives(tmp_path: Path, is_abstract: bool) -> None:
    name = f"zmqtriton-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if is_abstract else name)

        Notifier(f"@{name}" if is_abstract else name).send("READY=1\nSTATUS=fine")

        assert b"READY=1\nSTATUS=fine" == manager.recv(100)


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).send("READY=1")
    Notifier().send("READY=1")


@pytest.mark.parametrize(
    ("environment", "passed"),
    [
        ({}, []),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "1"}, [(3, "")]),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}, [(3, "a"), (4, "b")]),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a"}, [(3, "a"), (4, "")]),
        ({"LISTEN_PID": "8", "LISTEN_FDS": "1"}, []),
        ({"LISTEN_FDS": "1"}, []),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "-1"}, []),
        ({"LISTEN_PID": "7"}, []),
    ],
)
def test_sockets_are_for_the_process_that_they_were_passed_to(
    environment: Mapping[str, str], passed: list[tuple[int, str]]
) -> None:
    assert passed == passed_sockets(environment, pid=7)
