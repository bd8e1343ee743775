"""docs/conformance.md and the tests agree: what is done is tested, by the tests that it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.conformance.tables import TABLES
from tests.repo.sources import parsed, tree_of
from tests.support.needs import ROOT, files_of_tests, mark_of

PAGE = ROOT / "docs" / "conformance.md"
STATES = ("done", "partly", "open")
#: More than this and a test shows none of them well. Options do not count: a command line has many.
ROWS_PER_TEST = 3


class Row(NamedTuple):
    id: str
    tests: tuple[str, ...]
    state: str


class MarkedTest(NamedTuple):
    """A test function with its rows, and whether it is skipped wherever it runs."""

    rows: tuple[str, ...]
    is_skipped: bool


def rows(page: str) -> list[Row]:
    """The rows of all tables; a cell holds no `|`, not even a quoted one."""
    rows = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if re.fullmatch(r"[A-Z]\d{2}[a-z]?|nv_\w+|--[a-z][a-z0-9-]*", cells[0]):
            assert len(cells) == 4, f"{cells[0]}: {len(cells)} cells instead of 4"
            rows.append(Row(cells[0], tuple(re.findall(r"`([^`]+\.py::\w+)`", cells[2])), cells[3]))
    return rows


def _calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for decorator in function.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        yield ast.unparse(call), decorator


@cache
def marked_in(path: Path) -> dict[str, MarkedTest]:
    return marked_tests(tree_of(path))


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body)


def marked_tests(tree: ast.Module) -> dict[str, MarkedTest]:
    """The test functions of a file, those in classes too."""
    tests = {}
    for node in _functions(tree.body):
        ids: list[str] = []
        is_skipped = False
        for name, decorator in _calls(node):
            # In a table of cases each may have rows of its own.
            marks = [decorator] if name == "pytest.mark.row" else list(ast.walk(decorator))
            for mark in marks if name in ("pytest.mark.row", "pytest.mark.parametrize") else ():
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row":
                    ids += [ast.literal_eval(argument) for argument in mark.args]
            is_skipped |= name in ("pytest.mark.skip", "pytest.mark.xfail")
        tests[node.name] = MarkedTest(tuple(ids), is_skipped)
    return tests


def _all_tests() -> dict[str, MarkedTest]:
    return {
        f"{mark_of(path)}::{name}": test
        for path in files_of_tests()
        for name, test in marked_in(path).items()
    }


def recorded_cases(*, but: Collection[str] = ()) -> dict[str, MarkedTest]:
    """Return the cases of conformance/tables, but for those of some repositories."""
    return {
        f"{mark_of(Path(str(table.__file__)))}::{case.name}": MarkedTest((case.row,), False)
        for table in TABLES.values()
        if table.REPOSITORY not in but
        for case in table.CASES
    }


def complaints(
    table: list[Row], tests: dict[str, MarkedTest], cases: Mapping[str, MarkedTest] = {}
) -> list[str]:
    """Return what does not fit together, a line each; a row need not name each of its cases."""
    all_tests, faults = {**tests, **cases}, []
    ids = [row.id for row in table]
    faults += [f"{id}: stands twice" for id in sorted({i for i in ids if ids.count(i) > 1})]
    for row in table:
        if row.state not in STATES:
            faults.append(f"{row.id}: no such state: {row.state}")
        if row.state == "done" and not row.tests:
            faults.append(f"{row.id}: done, and no test named")
        for name in row.tests:
            if name not in all_tests:
                faults.append(f"{row.id}: no test {name}")
            elif row.id not in all_tests[name].rows:
                faults.append(f"{row.id}: {name} does not name it")
            elif row.state == "done" and all_tests[name].is_skipped:
                faults.append(f"{row.id}: done, and {name} is skipped")
    for name, test in tests.items():
        if len([id for id in test.rows if not id.startswith("--")]) > ROWS_PER_TEST:
            faults.append(f"{name}: names more than {ROWS_PER_TEST} rows")
        named = {row.id for row in table if name in row.tests}
        faults += [f"{name}: names {id}, which does not name it" for id in set(test.rows) - named]
    return faults


def test_the_table_and_the_tests_agree() -> None:
    assert [] == complaints(rows(PAGE.read_text("utf-8")), _all_tests(), recorded_cases())


#: What Triton measures and dashboards ask for.
_METRICS = (
    "inference_request_success inference_request_failure inference_count inference_exec_count "
    "inference_request_duration_us inference_queue_duration_us "
    "inference_compute_input_duration_us inference_compute_infer_duration_us "
    "inference_compute_output_duration_us inference_pending_request_count "
    "model_load_duration_secs inference_first_response_histogram_ms "
    "cache_num_hits_per_model cache_num_misses_per_model "
    "cache_hit_duration_per_model cache_miss_duration_per_model "
    "cpu_utilization cpu_memory_total_bytes cpu_memory_used_bytes gpu_utilization "
    "gpu_memory_total_bytes gpu_memory_used_bytes gpu_power_usage gpu_power_limit "
    "energy_consumption pinned_memory_pool_total_bytes pinned_memory_pool_used_bytes"
)


#: Those of Triton's that people have in their command lines.
_OPTIONS = (
    "help id exit-timeout-secs model-repository model-store exit-on-error "
    "disable-auto-complete-config strict-model-config strict-readiness model-control-mode "
    "repository-poll-secs load-model model-config-name model-load-thread-count "
    "model-load-retry-count allow-http http-address http-port reuse-http-port "
    "http-header-forward-pattern http-thread-count http-max-input-size http-restricted-api "
    "allow-grpc grpc-address grpc-port reuse-grpc-port grpc-header-forward-pattern "
    "grpc-max-response-pool-size grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert "
    "grpc-server-key grpc-root-cert grpc-infer-response-compression-level grpc-keepalive-time "
    "grpc-keepalive-timeout grpc-keepalive-permit-without-calls grpc-http2-max-pings-without-data "
    "grpc-http2-min-recv-ping-interval-without-data grpc-http2-max-ping-strikes "
    "grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol log-verbose "
    "log-info log-warning log-error log-format log-file allow-metrics metrics-port "
    "metrics-address allow-gpu-metrics allow-cpu-metrics metrics-interval-ms metrics-config "
    "trace-config cache-config cache-directory response-cache-byte-size rate-limit "
    "rate-limit-resource pinned-memory-pool-byte-size cuda-memory-pool-byte-size "
    "min-supported-compute-capability host-policy backend-directory backend-config "
    "allow-client-shm"
)


def test_every_metric_and_option_of_triton_s_that_counts_has_a_row() -> None:
    names = {f"nv_{name}" for name in _METRICS.split()}
    names |= {f"--{name}" for name in _OPTIONS.split()}

    assert names <= {row.id for row in rows(PAGE.read_text("utf-8"))}


def test_rows_of_the_cases_of_a_table_are_those_of_its_test() -> None:
    source = (
        '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.row("--id"))])\n'
        "def test_it(a: int) -> None: ...\n"
    )

    assert {"test_it": MarkedTest(("--id",), False)} == marked_tests(parsed(source))


def test_a_row_that_is_done_needs_a_test_that_runs_and_names_it() -> None:
    table = [
        Row("A01", (), "done"),
        Row("A02", ("t.py::gone",), "done"),
        Row("A03", ("t.py::other",), "done"),
        Row("A04", ("t.py::skipped",), "done"),
        Row("A05", (), "open"),
        Row("A06", ("t.py::case",), "done"),
        Row("A07", ("t.py::case",), "done"),
    ]
    tests = {"t.py::other": MarkedTest((), False), "t.py::skipped": MarkedTest(("A04",), True)}

    assert [
        "A01: done, and no test named",
        "A02: no test t.py::gone",
        "A03: t.py::other does not name it",
        "A04: done, and t.py::skipped is skipped",
        "A07: t.py::case does not name it",
    ] == complaints(table, tests, {"t.py::case": MarkedTest(("A06",), False)})


def test_marks_are_read_from_the_source_of_a_test() -> None:
    source = '@pytest.mark.row("A01", "A02")\n@pytest.mark.skip\ndef test_it() -> None: ...\n'

    assert {"test_it": MarkedTest(("A01", "A02"), True)} == marked_tests(parsed(source))
