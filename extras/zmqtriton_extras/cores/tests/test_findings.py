"""What check, doctor and explain say about cores, and values of CORES that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnosis.explaining.test_findings import READY
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton.diagnosis.facts.target import RunningServer, Target
from zmqtriton.findings import Finding
from zmqtriton.options.values import BadValue
from zmqtriton_extras.cores import findings, settings
from zmqtriton_extras.cores.tests.test_dealing import machine


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "read_machine", lambda: machine(1, 8))


def config(cores: str, count: int = 1) -> Any:
    parameter = f'parameters {{ key: "CORES" value {{ string_value: "{cores}" }} }}'
    return parse_text(f'backend: "python" {parameter} instance_group {{ count: {count} }}')


@pytest.mark.parametrize("text", ["", "0", "-1", "1025", "half", "0-3"])
def test_other_values_are_refused(text: str) -> None:
    [problem] = settings.problems(config(text))

    assert f"CORES is '{text}', which is no whole number from 1 to 1024, 'auto' or" in problem.text
    assert settings.read(config(text)) is None


def test_an_option_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadValue, match="for --cores\nAny of: auto, off"):
        settings.read_option("4")


def test_check_says_what_instances_get_here() -> None:
    models = {"a": config("auto", 3), "b": config("2"), "c": config("all"), "d": parse_text("")}
    noted = [
        *findings.notes_of_configs(models),
        *findings.notes_of_configs({"e": config("auto", 9)}),
    ]

    assert {
        "a": ("note", "each of its 3 instances computes with 2 of 8 cores on this machine"),
        "b": ("note", "its instance computes with 2 of 8 cores on this machine"),
        "e": (
            "warning",
            "each of its 9 instances computes with 1 of 8 cores on this machine, which 9 instances "
            "share",
        ),
    } == {name: (each.severity.value, each.text) for name, each in noted}


def doctor(**target: Any) -> list[Finding]:
    [chapter] = findings.chapters(Target(**target))
    return [*chapter.findings]


def test_the_doctor_says_what_a_machine_gives() -> None:
    [before] = doctor(options={"cores": "auto"})
    [running] = doctor(options={"cores": "auto"}, server=RunningServer("x", 1, "1", instances=20))

    text = "8 cores are dealt to instances; threads of each, by their number: "
    assert f"{text}1: 8, 2: 4, 4: 2, 8: 1" == before.text
    assert ("warning", f"{text}20: 1") == (running.severity.value, running.text)
    assert [] == doctor(options={"cores": "off"})


def row(instance: str, cores: str, threads: int = 2, **more: object) -> dict[str, Any]:
    return {
        **{"model": "m", "version": 1, "instance": instance, "cores": cores, "threads": threads},
        **{"due_threads": 2, "is_shared": False, **more},
    }


def explained(*rows: dict[str, Any]) -> list[Finding]:
    facts = Facts("m", index=[READY], status={"cores": rows})
    assert [] == [*findings.findings(facts, None)]
    return [*findings.notes(facts, None)]


def test_explain_says_which_cores_instances_have_and_what_is_wrong() -> None:
    [noted] = explained(row("m_0", "0-1"), row("m_1", "2-3"))
    _, shared, old = explained(row("m_0", "0-1", 8), row("m_1", "0-1", is_shared=True))

    assert "cores of its instances: m_0: 0-1, m_1: 2-3" == noted.text
    assert "more instances than cores" in shared.text
    assert old.text.startswith("m_0: started with threads for other cores")
    assert ("zmqtriton-ctl reload m --force",) == (*old.commands,)
