"""The parts of `make release` that need no build: versions, the changelog's entry, equal bytes."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, find_tool
from tools import release

CHANGES = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in release.WITH_VERSION:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_the_version_is_written_once_wherever_it_stands(checkout: Path) -> None:
    assert [*release.WITH_VERSION] == release.write_version(checkout, "7.8.9")
    assert [] == release.write_version(checkout, "7.8.9")

    text = (checkout / "packages/pytriton/pyproject.toml").read_text()
    assert 'version = "7.8.9"' in text
    assert '"zmqtriton==7.8.9"' in text
    assert '__version__ = "7.8.9"' in (checkout / "stub/zmqtriton_floor/__init__.py").read_text()


def test_what_is_unreleased_becomes_the_entry_of_the_version(checkout: Path) -> None:
    assert ["CHANGELOG.md"] == release.write_entry(checkout, "7.8.9", "2026-11-26")
    assert [] == release.write_entry(checkout, "7.8.9", "2026-11-27")

    text = (checkout / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [7.8.9] - 2026-11-26\n\n- New.\n" in text
    assert "- New.\n" == release.entry_of(checkout, "7.8.9")
    assert "- Old.\n" == release.entry_of(checkout, "0.1.0")


def test_a_version_of_which_nothing_is_said_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("## [7.8.9] - 2026-11-26\n\n## [0.1.0]\n\n- Old.\n")

    with pytest.raises(release.ReleaseError, match="says nothing of"):
        release.entry_of(checkout, "7.8.9")


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3-rc1"])
def test_what_is_no_version_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match="is no version"):
        release.release(version, tmp_path)


def sdist_of(*names: str, mode: int, moment: int, user: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime, member.uid = len(name), mode, moment, user
            archive.addfile(member, io.BytesIO(name.encode()))
    return gzip.compress(raw.getvalue(), mtime=moment)


def test_an_sdist_depends_on_its_contents_alone() -> None:
    first = release.repacked_sdist(sdist_of("p/a", "p/b", mode=0o644, moment=1, user=0), 1000)
    second = release.repacked_sdist(sdist_of("p/b", "p/a", mode=0o600, moment=2, user=7), 1000)

    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert ["p/a", "p/b"] == archive.getnames()
        read = archive.extractfile("p/b")
        assert read is not None
        assert b"p/b" == read.read()


def wheel_of(*names: str, year: int, mode: int) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            info.external_attr = mode << 16
            archive.writestr(info, name)
    return raw.getvalue()


def test_a_wheel_likewise_and_its_record_is_the_last() -> None:
    names = ("p.dist-info/RECORD", "p/a.py", "q.py")
    first = release.repacked_wheel(wheel_of(*names, year=2020, mode=0o100644), 10**9)
    second = release.repacked_wheel(wheel_of(*names[::-1], year=2021, mode=0o100600), 10**9)

    assert first == second
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert ["p/a.py", "q.py", "p.dist-info/RECORD"] == archive.namelist()


def test_sums_are_of_all_files_and_are_signed_where_a_key_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    monkeypatch.delenv("RELEASE_KEY", raising=False)

    release.sign(tmp_path)

    assert (tmp_path / "SHA256SUMS").read_text().endswith("  a.whl\n")
    assert "not signed" in capsys.readouterr().out


# ------------------------------------------------------------------ the workflow

#: Writes its arguments, in place of a program that publishes.
RECORDER = '#!/bin/sh\necho "${0##*/} $*" >> "$RECORD"\n'


@pytest.fixture
def jobs() -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    jobs: dict[str, Any] = workflow["jobs"]
    return jobs


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The files of a release, as the second jobs get them, by their names."""
    out = tmp_path / "release"
    out.mkdir()
    for name in ("zmqtriton", *(f"zmqtriton_{package}" for package in release.PACKAGES)):
        (out / f"{name}-7.8.9-py3-none-any.whl").touch()
        (out / f"{name}-7.8.9.tar.gz").touch()
    release.write_image_context(out, "7.8.9", 10**9)
    for name in ("zmqtriton-7.8.9-changes.md", "zmqtriton-7.8.9.cdx.json", "SHA256SUMS"):
        (out / name).touch()
    (out / "zmqtriton_7.8.9_amd64.deb").touch()
    return tmp_path


def run_steps(job: dict[str, Any], directory: Path) -> list[str]:
    """Run the commands of a job as GitHub does; return those that publish."""
    record, programs = directory / "record", directory / "bin"
    programs.mkdir()
    for name in ("gh", "docker"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    record.touch()
    for step in job["steps"]:
        if "run" in step:
            environment = {
                "PATH": f"{programs}:{os.environ['PATH']}",
                "RECORD": str(record),
                "GITHUB_REF_NAME": "v7.8.9",
                "GITHUB_REPOSITORY": "Owner/zmqtriton",
            }
            command = [find_tool("bash"), "-e", "-c", step["run"]]
            subprocess.run(command, cwd=directory, env=environment, check=True)
    return record.read_text().splitlines()


def test_the_workflow_builds_by_the_command_of_the_page(jobs: dict[str, Any]) -> None:
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]

    [build] = [command for command in commands if "make release" in command]
    assert build.endswith('make release VERSION="${GITHUB_REF_NAME#v}"')
    assert "\nrelease:" in (ROOT / "Makefile").read_text("utf-8")
    kept = [step["with"]["path"] for step in jobs["build"]["steps"] if "artifact" in str(step)]
    assert "build/release" in kept
    assert {"page", "index", "image"} == {
        name for name, job in jobs.items() if job.get("needs") == "build"
    }


def test_the_page_of_a_release_has_its_changes_and_all_files(
    jobs: dict[str, Any], built: Path
) -> None:
    files = sorted(f"release/{path.name}" for path in (built / "release").iterdir())

    [published] = run_steps(jobs["page"], built)

    assert published == (
        "gh release create v7.8.9 --repo Owner/zmqtriton --notes-file "
        f"release/zmqtriton-7.8.9-changes.md {' '.join(files)}"
    )


def test_the_index_gets_wheels_and_sdists_and_nothing_else(
    jobs: dict[str, Any], built: Path
) -> None:
    run_steps(jobs["index"], built)

    names = {path.name for path in (built / "dist").iterdir()}
    assert 2 * (1 + len(release.PACKAGES)) == len(names)
    assert set() == {name for name in names if "-7.8.9" not in name or "image" in name}


def test_the_image_is_built_where_its_context_is(jobs: dict[str, Any], built: Path) -> None:
    build, push = run_steps(jobs["image"], built)

    assert "docker build -t ghcr.io/owner/zmqtriton:7.8.9 ." == build
    assert "docker push ghcr.io/owner/zmqtriton:7.8.9" == push
    assert "ARG ZMQTRITON=/src/zmqtriton-7.8.9-py3-none-any.whl" in (
        built / "Dockerfile"
    ).read_text("utf-8")
