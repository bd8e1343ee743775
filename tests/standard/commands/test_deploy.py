"""`zmqtriton deploy`: kinds, files and what is said about them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.needs import ROOT
from zmqtriton.main import main
from zmqtriton_standard.commands.deploy import kinds, opening, terminal_text

DEPLOY = ROOT / "deploy"
ALL_KINDS = sorted(path.parent.name for path in DEPLOY.glob("*/README.md"))


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def without_links(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files without what differs where one has links."""
    outer = rb"\[([^]]*)\]\(\.\..*?\)| \[`(?:share/|zmqtriton deploy ).*?`\]"
    return {**files, "README.md": re.sub(outer, rb"\1", files["README.md"])}


def test_every_folder_is_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    folders = sorted(path.name for path in DEPLOY.iterdir() if path.is_dir())

    assert 0 == main(["deploy"])

    assert folders == list(kinds())
    shown = capsys.readouterr().out
    assert [] == [name for name in folders if f"\n  {name} " not in shown]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_all_files_are_written_and_commands_are_said(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["deploy", kind, str(tmp_path / "new/d")])

    written = files_below(tmp_path / "new/d")
    assert without_links(files_below(DEPLOY / kind)) == without_links(written)
    assert b"](.." not in written["README.md"], "a link that leads nowhere"
    for page in re.findall(rb"`share/doc/zmqtriton/(.*?)`", written["README.md"]):
        assert (ROOT / page.decode()).is_file()
    shown = capsys.readouterr().out
    assert [] == [name for name in files_below(tmp_path) if f"  {tmp_path / name}\n" not in shown]
    assert "\n    " in shown, "the README has no commands before its first section"
    for path in (DEPLOY / kind).rglob("*"):
        assert not os.access(path, os.X_OK) or os.access(tmp_path / "new/d" / path.name, os.X_OK)


def test_what_is_there_is_written_over_with_force_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deploy", "haproxy", str(tmp_path)]
    changed = tmp_path / "haproxy.cfg"
    changed.write_text("mine")

    assert 1 == main(words)
    assert ["haproxy.cfg"] == list(files_below(tmp_path))
    assert f"error: {changed}: there already, and different" in capsys.readouterr().err

    assert 0 == main([*words, "--force"])
    assert 0 == main(words), "the same files again"
    assert files_below(DEPLOY / "haproxy").keys() == files_below(tmp_path).keys()
    assert (DEPLOY / "haproxy/haproxy.cfg").read_bytes() == changed.read_bytes()


def test_an_unknown_kind_is_answered_with_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["deploy", "systmd"])

    assert f"no kind 'systmd'; the kinds are {', '.join(ALL_KINDS)}" in capsys.readouterr().err


def test_a_readme_is_shown_up_to_its_second_heading() -> None:
    readme = (
        "# Title\n\n| a | `b` |\n|---|---|\n| [c](d.md) | e |\n\nThen:\n\n    x `y`\n\n## More\n"
    )

    shown = terminal_text(opening(readme)).splitlines()

    assert ["Title", "", "+---+---+", "| a | b |", "+---+---+", "| c | e |"] == shown[:6]
    assert ["", "Then:", "", "    x `y`"] == shown[7:]
