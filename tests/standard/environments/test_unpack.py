"""Archives nobody has vouched for: what is taken, what is refused, and that nothing escapes."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tarfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.reports import Reports
from zmqtriton_floor.errors import InternalError
from zmqtriton_standard.environments.unpack import ArchiveLimits, environment_root, unpack

Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes = b"", **attributes: Any) -> Member:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    return member, data


def special(name: str, kind: bytes, goal: str = "", **attributes: Any) -> Member:
    return file(name, type=kind, linkname=goal, **attributes)


def link(name: str, goal: str) -> Member:
    return special(name, tarfile.SYMTYPE, goal)


ACTIVATE = file("bin/activate", b"VIRTUAL_ENV=/old/place\nexport VIRTUAL_ENV\n")
CONFIG = file("pyvenv.cfg", b"home = /usr/bin\n")


def pack(path: Path, members: Sequence[Member]) -> Path:
    compression: Any = {".gz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, compression, format=tarfile.PAX_FORMAT) as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return path


def take(
    path: Path, target: Path, bounds: ArchiveLimits | None = None, *, has_contents: bool = True
) -> Path:
    bounds = bounds or ArchiveLimits()
    target.mkdir()
    with path.open("rb") as archive:
        unpack(str(path), archive, target, Reports(), bounds, has_contents=has_contents)
    return target


def unpacked(tmp_path: Path, *members: Member, bounds: ArchiveLimits | None = None) -> Path:
    return take(pack(tmp_path / "env.tar.gz", members), tmp_path / "target", bounds)


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (file("../../x"), "'../../x' leads outside"),
        (file("bin/../../x"), "'bin/../../x' leads outside"),
        (file("/abs"), "'/abs' is an absolute name"),
        (file("x" * 5000), "is no name of a file"),
        (special("pipe", tarfile.FIFOTYPE), "'pipe' is neither file, directory nor link"),
        (special("null", tarfile.CHRTYPE), "'null' is neither file, directory nor link"),
        (special("disk", tarfile.BLKTYPE), "'disk' is neither file, directory nor link"),
        (link("passwd", "/etc/passwd"), "'passwd' is a link to '/etc/passwd', outside the archive"),
        (link("up", "../../x"), "'up' is a link to '../../x', outside the archive"),
        (link("bin/python", "/bin/sh"), "'bin/python' leads to"),
        (link("bin/sh", sys.executable), "outside the archive"),
        (link("bin/python", "/nowhere/bin/python3.8"), "which this machine does not have"),
        (special("hard", tarfile.LNKTYPE, "/etc/passwd"), "'/etc/passwd' is an absolute name"),
        (special("hard", tarfile.LNKTYPE, "../passwd"), "'../passwd' leads outside"),
        (special("hard", tarfile.LNKTYPE, "nobody"), "which is no file before it"),
        (link("bin/activate", "x"), "'bin/activate' is in the archive twice, as two kinds"),
        (file("bin"), "'bin' is in the archive twice, as two kinds"),
        (file("bin/activate/x"), "goes through 'bin/activate', a file or link"),
        (link("nothing", ""), "is a link to nothing"),
    ],
)
def test_what_an_environment_must_not_hold_is_refused_by_name(
    tmp_path: Path, member: Member, why: str
) -> None:
    before = set(tmp_path.iterdir())

    with pytest.raises(InternalError) as refused:
        unpacked(tmp_path, ACTIVATE, CONFIG, member)

    assert "env.tar.gz" in refused.value.text
    assert why in refused.value.text
    assert {"env.tar.gz", "target"} == {path.name for path in set(tmp_path.iterdir()) - before}


def test_a_link_that_escapes_only_through_another_one_is_refused(tmp_path: Path) -> None:
    # By its letters a/b/../etc stays inside; but a/b is the root.
    directory = special("a", tarfile.DIRTYPE)

    with pytest.raises(
        InternalError, match=r"'e' is a link to 'a/b/../../etc', outside the archive"
    ):
        unpacked(tmp_path, directory, link("a/b", ".."), link("e", "a/b/../../etc"))
    with pytest.raises(
        InternalError, match=r"'c' is a link to 'a/b/../target', outside the archive"
    ):
        take(
            pack(tmp_path / "2.tar", [directory, link("a/b", ".."), link("c", "a/b/../target")]),
            tmp_path / "second",
        )


def test_of_a_name_that_is_there_twice_the_last_counts(tmp_path: Path) -> None:
    target = unpacked(
        tmp_path,
        file("a", b"first", mode=0o755),
        special("copy", tarfile.LNKTYPE, "a"),
        file("a", b"last"),
        special("a", tarfile.LNKTYPE, "./a"),
        link("l", "copy"),
        link("l", "a"),
    )

    assert (b"last", b"first") == tuple((target / n).read_bytes() for n in ("a", "copy"))
    assert not os.access(target / "a", os.X_OK)
    assert "a" == os.readlink(target / "l")


def test_circles_of_links_lead_nowhere_and_do_no_harm(tmp_path: Path) -> None:
    target = unpacked(tmp_path, link("a", "b"), link("b", "a"), link("none", "not-there"))

    assert {"a", "b", "none"} == {path.name for path in target.iterdir()}


def test_links_that_stay_inside_are_kept(tmp_path: Path) -> None:
    target = unpacked(
        tmp_path,
        ACTIVATE,
        file("./lib/libx.so.1", b"code"),
        link("lib/libx.so", "libx.so.1"),
        link("lib64", "lib"),
        link("bin/tool", "/old/place/lib/libx.so.1"),
        special("lib/again", tarfile.LNKTYPE, "./lib/libx.so.1"),
    )

    for name in ("lib/libx.so", "lib64/libx.so", "bin/tool", "lib/again"):
        assert b"code" == (target / name).read_bytes()
    # It named its old place, and is relative now.
    assert "../lib/libx.so.1" == os.readlink(target / "bin/tool")


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (ArchiveLimits(max_members=2), "is one member too many"),
        (ArchiveLimits(max_bytes=10), "is more than there may be"),
        (ArchiveLimits(max_ratio=1, always_allowed_bytes=100), "is more than there may be"),
    ],
)
def test_an_archive_that_is_too_large_is_refused(
    tmp_path: Path, bounds: ArchiveLimits, why: str
) -> None:
    members = [file(f"f{i}", bytes(100_000)) for i in range(3)]

    with pytest.raises(InternalError, match=why):
        unpacked(tmp_path, *members, bounds=bounds)


@pytest.mark.parametrize("has_contents", [True, False])
def test_an_archive_that_the_disk_has_no_room_for_is_refused_where_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_contents: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    path = pack(tmp_path / "env.tar", [file("a", bytes(90_001))])

    with nullcontext() if not has_contents else pytest.raises(InternalError, match="than there"):
        take(path, tmp_path / "target", has_contents=has_contents)


@pytest.mark.slow
def test_a_header_that_asks_for_gigabytes_does_not_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zmqtriton_standard.environments.unpack._EXTRA_MEMORY_BYTES", 64 << 20)
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 64 << 30
    path = tmp_path / "env.tar"
    with path.open("wb") as archive:
        archive.write(name.tobuf(tarfile.GNU_FORMAT))
        archive.truncate(64 << 30)

    with pytest.raises(InternalError, match="cannot be unpacked"):
        take(path, tmp_path / "target")


@pytest.mark.skipif("zst" in tarfile.TarFile.OPEN_METH, reason="this Python reads zstd")
def test_zstd_is_refused_with_what_to_do_where_python_cannot_read_it(tmp_path: Path) -> None:
    path = pack(tmp_path / "env.tar.zst", [file("a")])

    with pytest.raises(Exception, match="the server's Python cannot read zstd"):
        take(path, tmp_path / "target")


@pytest.mark.parametrize("left", [0, 10, 600])
def test_an_archive_that_is_cut_off_is_said_to_be(tmp_path: Path, left: int) -> None:
    path = pack(tmp_path / "env.tar.gz", [file("a", os.urandom(5000))])
    path.write_bytes(path.read_bytes()[:left])

    with pytest.raises(InternalError, match=r"env\.tar\.gz cannot be unpacked: .*Is it whole"):
        take(path, tmp_path / "target")


def test_the_directory_that_was_packed_with_it_is_seen_through(tmp_path: Path) -> None:
    nested = take(pack(tmp_path / "1.tar", [file("env/bin/activate")]), tmp_path / "nested")
    flat = take(pack(tmp_path / "2.tar", [ACTIVATE]), tmp_path / "flat")
    other = take(pack(tmp_path / "3.tar", [file("env/x")]), tmp_path / "other")

    assert [nested / "env", flat, other] == [
        environment_root(nested),
        environment_root(flat),
        environment_root(other),
    ]
