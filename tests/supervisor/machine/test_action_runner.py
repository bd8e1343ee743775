"""Actions of the supervisor's core, as far as they need no machine."""

from __future__ import annotations

import json

from zmqtriton.supervisor.machine.action_runner import indented


def test_a_document_has_a_line_for_each_value_unless_it_is_very_large() -> None:
    large = json.dumps({"a": ["b"] * 20_000})

    assert '{\n    "a": 1\n}' == indented('{"a": 1}')
    assert large == indented(large)
