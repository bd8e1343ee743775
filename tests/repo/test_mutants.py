"""The faults that `make mutants` puts into modules, and the choice of tests for each."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from tools.mutants.equivalents import EQUIVALENTS
from tools.mutants.mutations import Mutation, mutations
from tools.mutants.naming import SystemTests, words
from tools.mutants.reach import Reach
from tools.mutants.rooms import FEATURES, ROOT, modules, room_of, sample


def faults(text: str) -> list[Mutation]:
    return mutations("zmqtriton/broker/core.py", textwrap.dedent(text).encode())


def changes(text: str) -> set[str]:
    return {f"{fault.before} -> {fault.after}" for fault in faults(text)}


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("x = a < b", "a < b -> a <= b"),
        ("x = a == b", "a == b -> a != b"),
        ("x = a not in b", "a not in b -> a in b"),
        ("x = a is not None", "a is not None -> a is None"),
        ("x = not a", "not a -> a"),
        ("x = a and b", "a and b -> a or b"),
        ("x = a or b", "a or b -> a and b"),
        ("x = a + b", "a + b -> a - b"),
        ("x -= a", "x -= a -> x += a"),
        ("a(b)", "a(b) -> pass"),
        ("x = f(b, 2)", "2 in x = f(b, 2) -> 3"),
        ("x = f(a=True)", "True in x = f(a=True) -> False"),
        ("if a:\n    b = c", "if a -> if True"),
        ("while a:\n    b = c", "if a -> if False"),
        ("for a in b:\n    continue", "continue -> break"),
        ("def f() -> bool:\n    return a(b)", "return a(b) -> return not (a(b))"),
    ],
)
def test_a_fault_is_one_small_change(text: str, change: str) -> None:
    assert change in changes(text)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring of 2 lines."""',
        "assert a < b",
        "raise ValueError(a + b)",
        "_log.warning('%d', 1)",
        "x = f'{a + 1}'",
        "if TYPE_CHECKING:\n    a()",
        "_MOST = 20",
        "x: Literal[1]",
        "class Kind(IntEnum):\n    A = 1",
        "def __repr__(self):\n    return str(a + b)",
        "x = 'a' + b",
        "x = 1_000_000",
        "x = itertools.count(1)",
        "x: Dict[Literal[1], int] = y",
    ],
)
def test_texts_and_choices_are_left_alone(text: str) -> None:
    assert set() == changes(text)


def test_every_edit_says_what_its_report_says() -> None:
    text = "x = 'é', (a) < (\n    b\n)\ny = not (\n    a\n)\n"

    edited = {
        fault.after: fault.apply(text.encode()).decode()
        for fault in mutations("zmqtriton/broker/core.py", text.encode())
    }

    assert {
        "a <= b": "x = 'é', (a) <= (\n    b\n)\ny = not (\n    a\n)\n",
        "a": "x = 'é', (a) < (\n    b\n)\ny = (a)\n",
    } == edited


def test_equal_changes_of_a_function_have_names_of_their_own() -> None:
    names = [fault.name for fault in faults("def f():\n    a()\n    a()\n")]

    assert [
        "zmqtriton/broker/core.py f: a() -> pass",
        "zmqtriton/broker/core.py f: a() -> pass #2",
    ] == names


def test_a_sign_in_a_comment_is_no_fault() -> None:
    text = "x = (\n    a  # and\n    and b\n)\n"

    assert [False] == [fault.changes(text.encode()) for fault in faults(text)]


def test_the_same_seed_gives_the_same_mutants_whatever_else_changes(tmp_path: Path) -> None:
    module = tmp_path / "zmqtriton" / "broker" / "core.py"
    module.parent.mkdir(parents=True)
    functions = [f"def f{i}(a, b):\n    return a < b\n" for i in range(20)]
    module.write_text("\n".join(functions), "utf-8")
    before = [mutant.name for mutant in sample(tmp_path, 1, 5)]

    module.write_text("\n".join(["import x\n", *functions]), "utf-8")

    assert before == [mutant.name for mutant in sample(tmp_path, 1, 5)]
    assert before != [mutant.name for mutant in sample(tmp_path, 2, 5)]


def test_what_acts_is_not_mutated() -> None:
    names = set(modules(ROOT))

    assert "zmqtriton/broker/core.py" in names
    assert "zmqtriton/supervisor/machine/process_settings.py" in names
    assert not {"zmqtriton/broker/service.py", "zmqtriton/start/tables.py"} & names
    rooms = {room_of(name).name for name in names}
    assert {
        "broker",
        "supervisor",
        "reading",
        "entrance",
        "gateway",
        "stub",
        "canaries",
        "scaling",
        *FEATURES,
    } == rooms


def test_the_tests_of_every_room_are_tried() -> None:
    rooms = [
        ROOT / "tests" / room
        for room in ("broker", "frontends/entrance", "frontends/gateway", "stub", "supervisor")
    ]
    files = {
        path.relative_to(ROOT).as_posix() for room in rooms for path in room.rglob("test_*.py")
    }

    assert set() == files - {*Reach().stale(ROOT)}


def test_tests_of_the_system_are_chosen_by_what_they_are_about() -> None:
    system = SystemTests(ROOT, ROOT / "docs" / "conformance.md")
    mutant = mutations("zmqtriton/broker/memory/response_cache.py", b"def find(a):\n    a.use()\n")

    chosen = system.naming(mutant[0], limit=2)

    assert 2 == len(chosen)
    assert all(name.startswith("tests/system/") for name in chosen)
    assert (
        "tests/system/scheduling/test_response_cache_and_rate_limiter.py"
        == chosen[0].partition("::")[0]
    )


def test_words_are_compared_without_their_endings() -> None:
    assert words("deadlocks") == words("test_a_deadlock") - words("a")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="writes tuples with parentheses")
def test_a_mutant_that_is_called_equivalent_exists() -> None:
    paths = {name.partition(" ")[0] for name in EQUIVALENTS}
    names = {m.name for path in paths for m in mutations(path, (ROOT / path).read_bytes())}

    assert set() == EQUIVALENTS.keys() - names
