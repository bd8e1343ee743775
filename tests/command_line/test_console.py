"""The tables against what Triton prints for the same data."""

from __future__ import annotations

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
    assert "/a" == rows["model_repository_path[0]"]
    assert "/b" == rows["model_repository_path[1]"]
    assert "67108864" == rows["cuda_memory_pool_byte_size{0}"]
    assert "1024" == rows["cuda_memory_pool_byte_size{1}"]
    assert "MODE_NONE" == rows["model_control_mode"]
    assert "EXEC_COUNT" == rows["rate_limit"]
    assert "1" == rows["strict_model_config"]
    assert "1" == rows["cache_enabled"]


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
