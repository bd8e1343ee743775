"""Decisions on a model in a repository: versions, agents, models of one file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zmqtriton.config.pbtxt import parse_text
from zmqtriton.repository import decisions
from zmqtriton.repository.agents import agent_problems
from zmqtriton.repository.decisions import Decision, TriedVersions, state_root
from zmqtriton.repository.scan import (
    Promotion,
    ScannedModel,
    VersionSelection,
    scan_model,
    scan_single_file,
)
from zmqtriton_floor.errors import InternalError

# --------------------------------------------------------------------------- decisions
# Decisions about canaries in a directory: by content, and safe among several servers.


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for version in (1, 2):
        (tmp_path / "m" / str(version)).mkdir(parents=True)
        (tmp_path / "m" / str(version) / "model.py").write_text(f"# {version}")
    (tmp_path / "m/config.pbtxt").write_text("")
    return tmp_path / "m"


@pytest.fixture
def records(tmp_path: Path) -> TriedVersions:
    return TriedVersions(str(tmp_path / "state"))


def scan(model: Path) -> ScannedModel:
    return scan_model(model, model.parent)


def reject(records: TriedVersions, model: Path, version: int = 2) -> str:
    """Reject a version; return the problem, "" if there is none."""
    scanned = scan(model)
    contents = scanned.version_fingerprints[version]
    return records.keep(
        scanned, [Decision(version, contents, is_promotion=False, reason="too slow")]
    )


def rejected(records: TriedVersions, model: Path) -> list[int]:
    return [number for number, _ in records.with_decisions(scan(model)).selection.rejected]


def test_files_beyond_a_limit_are_compared_by_size_and_time(
    records: TriedVersions, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "_MAX_CONTENT", 4)
    weights = model / "2/inner/weights"
    weights.parent.mkdir()
    weights.write_bytes(b"12345")
    os.utime(weights, (100, 100))
    reject(records, model)

    weights.write_bytes(b"54321")
    os.utime(weights, (200, 100.9))
    assert [2] == rejected(records, model)
    os.utime(weights, (200, 200))
    assert [] == rejected(records, model)


def test_the_last_decision_about_the_same_content_holds(
    records: TriedVersions, model: Path
) -> None:
    reject(records, model)
    scanned = scan(model)
    contents = scanned.version_fingerprints[2]

    records.keep(scanned, [Decision(2, contents, is_promotion=True, policy="latest")])

    selection = records.with_decisions(scanned).selection
    assert ((), [(2, contents, "latest")]) == (selection.rejected, [*selection.promoted])


def test_a_rejected_version_is_left_out_until_its_files_change_unless_it_is_the_only_one() -> None:
    available = VersionSelection(rejected=((2, "x"),)).available

    assert ((1,), (1, 2)) == (available({1: "a", 2: "x"}), available({1: "a", 2: "y"}))
    assert (2,) == available({2: "x"})


@pytest.mark.parametrize(
    ("changes", "versions"),
    [({}, (1, 2)), ({"contents": "other files"}, (1,)), ({"policy": "another one"}, (1,))],
)
def test_a_promoted_version_serves_as_long_as_it_and_the_policy_are_the_same(
    model: Path, changes: dict[str, Any], versions: tuple[int, ...]
) -> None:
    config, scanned = parse_text("version_policy { specific { versions: [1] } }"), scan(model)
    contents, policy = scanned.version_fingerprints[2], decisions.version_policy(config)
    selection = VersionSelection(promoted=(Promotion(2, contents, policy)._replace(**changes),))
    choice = decisions.choose_with_trial(config, replace(scanned, selection=selection), None)

    assert versions == choice.versions


def test_the_decisions_of_this_server_come_first(records: TriedVersions, model: Path) -> None:
    reject(records, model)
    scanned = scan(model)
    trial = scanned.selection._replace(kept=frozenset({1, 2}))

    assert () == records.with_decisions(replace(scanned, selection=trial)).selection.rejected


def test_versions_are_forgotten_one_by_one(records: TriedVersions, model: Path) -> None:
    reject(records, model, 1)
    reject(records, model, 2)

    assert "" == records.keep(scan(model), [], undecided=[1])

    assert [2] == rejected(records, model)
    (model / "labels.txt").touch()  # which all versions load
    assert [] == rejected(records, model)


def test_a_directory_that_cannot_be_written_is_named(model: Path) -> None:
    records = TriedVersions(str(model / "config.pbtxt"))

    problem = reject(records, model)

    assert any(f"config.pbtxt/{name}': " in problem for name in ("canaries", "trials"))
    assert [] == rejected(records, model)


def test_the_place_is_systemd_s_or_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    assert "/home/me/state/zmqtriton" == state_root()
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/zmqtriton:/var/lib/other")
    assert "/var/lib/zmqtriton" == state_root()


# ------------------------------------------------------------------------------ agents
# Which repository agents a configuration may ask for.


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


# ------------------------------------------------------------------------- single file
# A model of a single file: what belongs to it of all that lies beside it.


def write(path: Path, text: str = "# code") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_it_is_version_1_in_the_directory_of_the_file(tmp_path: Path) -> None:
    model = scan_single_file("m", write(tmp_path / "scale.py"))

    assert ("m", tmp_path, (1,), None) == (
        model.name,
        model.path,
        model.versions,
        model.config_path,
    )


@pytest.mark.parametrize(
    "name",
    [
        *("scale.py", "helper.py", "package/inner.py", "package/inner/deep.py", "config.pbtxt"),
        *("initial_state/zeros", "initial_state/inner/zeros"),
    ],
)
def test_a_change_of_what_it_may_load_is_one_of_the_model(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "scale.py")
    write(tmp_path / "package" / "__init__.py")
    write(tmp_path / "config.pbtxt", "max_batch_size: 1")
    before = scan_single_file("m", file)

    write(tmp_path / name, "something else")

    after = scan_single_file("m", file)
    assert before.fingerprint != after.fingerprint
    assert (before.version_fingerprints != after.version_fingerprints) == (name != "config.pbtxt")


@pytest.mark.parametrize(
    "name", ["server.log", "folder/other.py", "package/table.csv", ".x.py.swp"]
)
def test_what_else_lies_there_does_not_count(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "scale.py")
    write(tmp_path / "package" / "__init__.py")
    before = scan_single_file("m", file)

    write(tmp_path / name, "something else")

    assert before == scan_single_file("m", file)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="Python model file not found"):
        scan_single_file("m", tmp_path / "scale.py")
