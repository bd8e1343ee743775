"""Documents as YAML, which other readers of YAML understand."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton.ctl.output import print_document

DOCUMENTS: dict[str, Any] = {
    "nested": {"a": [1, 2.5, {"b": None, "c": [True, []]}], "d": {}, "e": [[1], [2]]},
    "texts": ["plain", "no", "1.0", "a: b", "two\nlines", "- x", "", "caf\u00e9", "~", "#"],
    "letters": ["\U0001f600 \\ud83d", "\x85\x7f\u2028", '"\\'],
    "keys": {"with space": 1, "yes": 2, "1": 3},
    "empty": [],
    "scalar": 3,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_yaml_is_read_back_as_it_was(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = pytest.importorskip("yaml")

    print_document("yaml", DOCUMENTS[name])

    assert DOCUMENTS[name] == yaml.safe_load(capsys.readouterr().out)


def test_yaml_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_document("yaml", [{"name": "m", "state": "READY", "sizes": [1, 2]}])

    assert "- name: m\n  state: READY\n  sizes:\n    - 1\n    - 2\n" == capsys.readouterr().out
