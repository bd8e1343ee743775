"""Which repository agents a configuration may ask for."""

from __future__ import annotations

import pytest

from zmqtriton.config.pbtxt import parse_text
from zmqtriton.repository.agents import agent_problems


def problems_of(agent: str, more: str = "") -> list[tuple[str, str]]:
    config = parse_text(f'name: "m" model_repository_agents {{ agents {{ {agent} }} }} {more}')
    return [(problem.text, problem.suggestion) for problem in agent_problems(config, "/agents")]


@pytest.mark.row("E49")
def test_the_checksum_of_a_file_may_be_asked_for() -> None:
    good = 'name: "checksum" parameters { key: "MD5:1/model.py" value: "0" }'

    assert [] == problems_of(good)
    assert [
        ("agent 'checksum' has no process that could read the files of ensemble 'm'", "")
    ] == problems_of(good, "ensemble_scheduling { }")


@pytest.mark.row("E49")
@pytest.mark.parametrize(
    ("agent", "expected", "meant"),
    [
        (
            'name: "checksums"',
            "unable to find 'libtritonrepoagent_checksums.so' for repo agent 'checksums', "
            "searched: /agents",
            "checksum",
        ),
        (
            'name: "checksum" parameters { key: "SHA1:x" value: "0" }',
            "Unsupported checksum type in 'SHA1:x', expected 'MD5:<file>'",
            "",
        ),
        (
            'name: "checksum" parameters { key: "MD5:../x" value: "0" }',
            "file '../x' of a checksum is outside model directory",
            "",
        ),
    ],
)
def test_what_no_agent_does_is_refused(agent: str, expected: str, meant: str) -> None:
    assert [(expected, meant)] == problems_of(agent)
