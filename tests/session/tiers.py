"""The tiers of the tests: `make test` runs the first, `make test KIND=long` what is marked `long`.

A test is long if it costs much and repeats, under load, over all cases or for many seeds, what
cheaper tests of the first tier show: the mark names them, and tests/repo/test_tiers.py holds that
they exist and are not long themselves. So is a test of a developer's `tool`, which is no promise
to users. Without `--tier` both run.

`--extras=smoke` leaves of the tests of extras those that have the mark `smoke`.

`--share=2/10` leaves a tenth of the files, whichever others there are.

`--quick` leaves out the folders of SLOW and each file that is `system`, `slow` or `long` as a
whole, and tests that are. Such files are not even imported: marks of a whole file are read from
its text.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.needs import files_of_tests, is_of_extra, is_of_tests, name_of, room_of

FIRST, LONG = "first", "long"
SMOKE = "smoke"
#: Rooms that only start programs or read the whole tree.
SLOW = (
    "system",
    "faults",
    "conformance",
    "deploy",
    "peers",
    "protos",
    "repo",
    "releases",
    "command_line",
    "environments",
)
#: Marks of a file that --quick leaves out.
_SLOW_MARKS = frozenset(("system", "slow", LONG))
#: The value of a file's `pytestmark`, which may go on in indented lines.
_FILE_MARKS = re.compile(r"^pytestmark = (.*(?:\n[ \])].*)*)", re.MULTILINE)


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("--tier") != FIRST:
        return None
    files = [path for path in files_of_tests() if _mentions(LONG, path)]
    whole = sum(LONG in file_marks(path) for path in files)
    return (
        f"left out: {whole} files that are long, and tests in {len(files) - whole} others; "
        "`make test KIND=long` runs them"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not is_of_tests(collection_path):
        return None
    if collection_path.is_dir():
        return (config.getoption("--quick") and is_slow_folder(collection_path)) or None
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    if config.getoption("--quick") and is_slow(collection_path):
        return True
    if (
        config.getoption("--extras")
        and is_of_extra(collection_path)
        and not _mentions(SMOKE, collection_path)
    ):
        return True
    if (share := config.getoption("--share")) and not _is_of_share(collection_path, share):
        return True
    tier = config.getoption("--tier")
    if tier == FIRST:
        return LONG in file_marks(collection_path) or None
    return (tier == LONG and not _mentions(LONG, collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier, extras = config.getoption("--tier"), config.getoption("--extras")
    slow = _SLOW_MARKS if config.getoption("--quick") else ()

    def is_run(item: pytest.Item) -> bool:
        is_of_tier = not tier or (tier == LONG) == bool(item.get_closest_marker(LONG))
        is_left_out = extras and is_of_extra(item.path) and not item.get_closest_marker(SMOKE)
        return is_of_tier and not is_left_out and not any(map(item.get_closest_marker, slow))

    run, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (run if is_run(item) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = run


def _is_of_share(path: Path, share: str) -> bool:
    number, _, of = share.partition("/")
    digest = hashlib.blake2b(name_of(path).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % int(of) == int(number)


@cache
def file_marks(path: Path) -> frozenset[str]:
    """Return the marks that all tests of a file have."""
    value = _FILE_MARKS.search(path.read_text("utf-8"))
    return frozenset(re.findall(r"pytest\.mark\.(\w+)", value[1]) if value else ())


def is_slow(path: Path) -> bool:
    """True for a file below tests/ that --quick leaves out."""
    return any(map(is_slow_folder, path.parents)) or bool(_SLOW_MARKS & file_marks(path))


@cache
def is_slow_folder(path: Path) -> bool:
    """True for a room of the core that --quick leaves out, and for an add-on's of that name."""
    if not is_of_tests(path):
        return False
    room = room_of(path)
    return len(room) == 1 and room[0] in SLOW


def _mentions(mark: str, path: Path) -> bool:
    return f"pytest.mark.{mark}" in path.read_text("utf-8")
