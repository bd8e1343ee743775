"""The tables of add-ons: our own rows first, then the entry points of other packages."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton import addons
from zmqtriton.control_client import NoServerError
from zmqtriton.main import main
from zmqtriton.options import Options
from zmqtriton_floor.process import references


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The first directory of the path, which is looked at anew."""
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (addons._foreign_rows, addons.backend_package):
        cached.cache_clear()
    yield tmp_path
    for cached in (addons._foreign_rows, addons.backend_package):
        cached.cache_clear()


def install(path: Path, name: str, text: str) -> None:
    metadata = path / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(text)


def test_rows_are_read_as_packaging_specifies_them(path: Path) -> None:
    text = """
    [console_scripts]
    other = other:main

    # what we add
    [zmqtriton.ctl]
    one=package.module:one
    two = package.module:two [extra]
    [zmqtriton.later]
    three = package
    """
    install(path, "package", text)

    assert {"one": "package.module:one", "two": "package.module:two"} == addons.rows_of_others(
        addons.CTL
    )
    assert "package.module:one" == addons.rows(addons.CTL)["one"]
    assert addons.find(addons.CTL, "three") is None


def test_our_own_rows_are_not_replaced(path: Path) -> None:
    install(path, "package", "[zmqtriton.ctl]\ndoctor = package:doctor\n")

    assert addons.own_rows()[addons.CTL]["doctor"] == addons.find(addons.CTL, "doctor")
    assert {} == addons.rows_of_others(addons.CTL)


def test_of_two_copies_of_a_package_the_first_of_the_path_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = path / "earlier"
    earlier.mkdir()
    monkeypatch.syspath_prepend(earlier)
    install(path, "package", "[zmqtriton.ctl]\none = later:one\n")
    install(earlier, "package", "[zmqtriton.ctl]\none = earlier:one\n")

    assert {"one": "earlier:one"} == addons.rows_of_others(addons.CTL)


@pytest.mark.parametrize("name", ["count", "count-all"])
def test_a_command_of_a_package_runs_and_is_in_the_help(
    path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    install(path, "package", f"[zmqtriton.commands]\n{name} = package_of_test:count\n")
    (path / "package_of_test.py").write_text("def count(words):\n    return len(words)\n")

    assert 2 == main([name, "a", "b"])
    assert 0 == main(["--help"])
    assert f"zmqtriton {name}\n" in capsys.readouterr().out


def test_a_backend_whose_package_is_not_there_is_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "[zmqtriton.backends]\nhere = backend_of_test\ngone = backend_of_test.gone\n"
    install(path, "package", text)
    (path / "backend_of_test").mkdir()
    (path / "backend_of_test" / "__init__.py").touch()

    assert ("backend_of_test", path / "backend_of_test") == addons.backend_package("here")
    assert addons.backend_package("gone") is None
    assert "'gone'" in caplog.text


def test_each_row_of_our_own_names_something() -> None:
    for table in (addons.COMMANDS, addons.CTL, addons.HTTP):
        for reference in addons.own_rows()[table].values():
            assert references.load(reference) is not None


def test_each_local_service_has_a_process_and_options() -> None:
    options = {field.name for field in dataclasses.fields(Options)}

    for name, service in addons.local_services().items():
        assert name in addons.own_rows()[addons.PROCESSES]
        # a service that only this server's processes ask has neither a group nor keys
        named = {service.switch, service.group, service.restrictions, *service.options} - {""}
        assert named <= options


def test_without_our_add_ons_there_is_no_row_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmqtriton_addons.table", None)
    monkeypatch.setattr(addons, "_own_declarations", addons._own_declarations.__wrapped__)

    assert not {"doctor", "status"} & addons.rows(addons.CTL).keys()
    assert {} == addons.own_rows()


def test_a_command_of_ours_looks_at_no_other_package() -> None:
    script = (
        "import zmqtriton.addons as a, click\nfrom zmqtriton.ctl.main import cli\n"
        "a._foreign_rows = None\nassert cli.get_command(click.Context(cli), 'status')\n"
        "assert cli.get_command(click.Context(cli), 'doctor')"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_process_that_no_server_has_started_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["watcher", "--every", "3"])

    with pytest.raises(NoServerError, match="it has no --lifeline"):
        addons.connect()
