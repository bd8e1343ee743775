"""Scripts written for NVIDIA's PyTriton do the same with `zmqtriton.pytriton`, case by case.

What it answered is in recorded/; `make conformance-record PYTRITON=…` asks it anew. A case that
differs on purpose stands in docs/recorded-differences.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton_extras.pytriton.tests.conformance import lists
from zmqtriton_extras.pytriton.tests.conformance.host import Host, Package, hosting, run_program
from zmqtriton_extras.pytriton.tests.conformance.tables import PROGRAMS, SCRIPTS, TABLES

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """All models of all scripts, bound by one process."""
    with hosting(Package(), SCRIPTS, tmp_path_factory.mktemp("host")) as host:
        yield host


def complaints(host: Host, table: str) -> list[str]:
    return lists.complaints({case.name: host.play(case) for case in TABLES[table].CASES}, table)


def complaints_of_program(name: str, directory: Path, host: Host | None = None) -> list[str]:
    return lists.complaints(run_program(Package(), name, directory, host), name)


# A test for each table, not for each case: what is looked for after each test costs more than all
# cases of a table.
@pytest.mark.row("J02", "J03", "J10")
def test_what_needs_no_server(tmp_path: Path) -> None:
    assert [] == complaints_of_program("plain", tmp_path)


@pytest.mark.row("J06", "J07")
def test_forms_of_callables(host: Host) -> None:
    assert [] == complaints(host, "forms")


@pytest.mark.row("J08", "J09")
def test_what_callables_return(host: Host) -> None:
    assert [] == complaints(host, "answers")


@pytest.mark.row("J06")
def test_what_callables_see(host: Host) -> None:
    assert [] == complaints(host, "requests")


@pytest.mark.row("J03")
def test_types_and_shapes(host: Host) -> None:
    assert [] == complaints(host, "kinds")


@pytest.mark.row("J20", "J22", "J24")
def test_decorators(host: Host) -> None:
    assert [] == complaints(host, "decorated")


@pytest.mark.row("J04", "J05", "J31")
def test_configurations(host: Host) -> None:
    assert [] == complaints(host, "configured")


@pytest.mark.row("J40", "J41", "J43")
def test_clients(host: Host, tmp_path: Path) -> None:
    assert [] == complaints_of_program("asking", tmp_path, host)


@pytest.mark.long(
    "extras/pytriton/system/test_triton.py::test_ctrl_c_ends_a_script_and_its_server",
    "extras/pytriton/system/test_triton.py::test_a_model_that_cannot_be_served_leaves_no_server",
)
@pytest.mark.row("J01")
def test_how_serving_begins_and_ends(tmp_path: Path) -> None:
    differences = complaints_of_program("lifecycle", tmp_path)

    assert [] == differences, (tmp_path / "lifecycle.log").read_text("utf-8")


def test_the_tables_fit_what_was_recorded() -> None:
    names = [case.name for table in TABLES.values() for case in table.CASES]
    programs = [name for program in PROGRAMS for name in lists.recorded(program)]

    assert len({*names, *programs}) == len(names) + len(programs)
    assert [] == [name for name in names if not re.fullmatch(r"\w+", name)]
    for name, table in TABLES.items():
        assert [case.name for case in table.CASES] == list(lists.recorded(name))
    assert [] == [name for name in lists.differing() if name not in {*names, *programs}]
    assert sorted(lists.differing()) == list(lists.recorded(lists.INTENDED))
