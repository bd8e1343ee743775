"""Budgets of statements: what is carried must be worth carrying.

A budget may only fall. What a new ability needs of the core is paid for by what leaves the core,
and a budget that is no longer needed is lowered to what is there. Statements are counted in the
syntax trees, without docstrings, so that longer lines save nothing; `make report` prints them.
"""

from __future__ import annotations

import ast

import pytest

from tools.report import packages, sizes, statements

CORE = ("zmqtriton", "stub", "frontends")
ADDONS = "addons/zmqtriton_addons/"

#: Of the core, of the tests but those of add-ons, and of each add-on with its own.
STATEMENTS = {
    "core": 44_795,
    "tests": 66_320,
    "tests/addons": 35_790,
    f"{ADDONS}access_log": 270,
    f"{ADDONS}affinity": 240,
    f"{ADDONS}sleeping": 90,
    f"{ADDONS}token_metrics": 430,
    f"{ADDONS}open_metrics": 100,
    f"{ADDONS}otlp_logs": 150,
    f"{ADDONS}otlp_metrics": 420,
    f"{ADDONS}backends": 1_620,
    f"{ADDONS}capture": 1_470,
    f"{ADDONS}commands": 260,
    f"{ADDONS}ctl": 2_050,
    f"{ADDONS}storage": 1_680,
    f"{ADDONS}tracing": 680,
    f"{ADDONS}door": 1_390,
    f"{ADDONS}fleet": 2_240,
    f"{ADDONS}canaries": 1_010,
    f"{ADDONS}cockpit": 510,
    f"{ADDONS}control_groups": 170,
    f"{ADDONS}draining": 460,
    f"{ADDONS}grpcio": 180,
    f"{ADDONS}memory": 150,
    f"{ADDONS}on_demand": 540,
    f"{ADDONS}operations": 130,
    f"{ADDONS}reloading": 120,
    f"{ADDONS}environments": 770,
    f"{ADDONS}generate": 390,
    f"{ADDONS}metrics": 1_050,
    f"{ADDONS}history": 290,
    f"{ADDONS}scaling": 360,
    "zmqtriton/embedded": 940,
    "zmqtriton/pytriton": 2_780,
    f"{ADDONS}routes": 1_050,
    f"{ADDONS}tools": 6_259,
    f"{ADDONS}tritonserver": 870,
    f"{ADDONS}web_apis": 3_040,
    f"{ADDONS}web_sockets": 520,
    f"{ADDONS}jobs": 2_100,
    f"{ADDONS}batches": 940,
}
#: The modules of core and add-ons.
FILES = 875
#: So far above what is there a budget may stand.
SLACK = 100


def _counts() -> dict[str, int]:
    counts = {name: sizes(paths).statements for name, paths in packages().items()}
    return {"core": sum(counts.pop(name) for name in CORE), **counts}


def _faults(counts: dict[str, int], budgets: dict[str, int]) -> list[str]:
    return [
        f"{name} has {count} statements, {budgets[name]} are its budget: "
        f"{'take something out' if count > budgets[name] else 'lower it'}"
        for name, count in counts.items()
        if not budgets[name] - SLACK <= count <= budgets[name]
    ]


def test_what_is_carried_does_not_grow() -> None:
    counts = _counts()

    assert STATEMENTS.keys() == counts.keys()
    assert [] == _faults(counts, STATEMENTS)


def test_the_number_of_modules_does_not_grow() -> None:
    count = sum(len(paths) for name, paths in packages().items() if not name.startswith("tests"))

    assert FILES - SLACK <= count <= FILES


@pytest.mark.parametrize(("count", "advice"), [(501, "take something out"), (399, "lower it")])
def test_a_budget_is_held_from_both_sides(count: int, advice: str) -> None:
    [fault] = _faults({"core": count}, {"core": 500})

    assert advice in fault


def test_longer_lines_and_docstrings_do_not_count() -> None:
    text = 'def f():\n    """Say why."""\n    a = 1; b = 2\n    return (\n        a + b\n    )\n'

    assert 4 == statements(ast.walk(ast.parse(text)))
