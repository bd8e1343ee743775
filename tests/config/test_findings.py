"""The form of a finding, for people and for programs."""

from __future__ import annotations

from zmqtriton.findings import Finding, warning


def test_a_finding_is_printed_with_its_advice_and_commands() -> None:
    finding = warning("few descriptors", "Raise the limit.", "ulimit -n 65536", "zmqtriton")

    lines = ["warning: few descriptors", "  Raise the limit."]
    commands = ["  next: ulimit -n 65536", "  then: zmqtriton"]
    assert [*lines, *commands] == finding.lines("", finding.severity.value)


def test_the_parser_s_words_and_the_probable_name_are_printed() -> None:
    finding = Finding("bad", path="m/config.pbtxt", line=3, detail="no field 'a'", suggestion="b")

    assert ["m/config.pbtxt:3: no field 'a'. Did you mean 'b'?"] == finding.lines(finding.place)


def test_a_program_gets_the_fields_that_it_is_promised() -> None:
    finding = warning("few descriptors", "", "ulimit -n 65536")

    document = {"severity": "warning", "text": "few descriptors", "commands": ["ulimit -n 65536"]}
    assert document == finding.document("severity", "text", "commands")
