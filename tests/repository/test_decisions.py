"""Decisions about canaries in a directory: by content, and safe among several servers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from zmqtriton.repository import decisions
from zmqtriton.repository.decisions import Decision, DecisionError, DecisionRecords, default_root
from zmqtriton.repository.scan import ScannedModel, scan_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for version in (1, 2):
        (tmp_path / "m" / str(version)).mkdir(parents=True)
        (tmp_path / "m" / str(version) / "model.py").write_text(f"# {version}")
    (tmp_path / "m/config.pbtxt").write_text("")
    return tmp_path / "m"


@pytest.fixture
def records(tmp_path: Path) -> DecisionRecords:
    return DecisionRecords(str(tmp_path / "state"))


def scan(model: Path) -> ScannedModel:
    return scan_model(model, model.parent)


def reject(records: DecisionRecords, model: Path, version: int = 2) -> None:
    scanned = scan(model)
    contents = scanned.version_fingerprints[version]
    records.keep(scanned, [Decision(version, contents, is_promotion=False, reason="too slow")])


def rejected(records: DecisionRecords, model: Path) -> list[int]:
    return [number for number, _ in records.apply(scan(model)).selection.rejected]


def test_a_decision_holds_while_content_is_the_same_whenever_it_was_written(
    records: DecisionRecords, model: Path
) -> None:
    reject(records, model)
    (model / "2/model.py").write_text("# 2")
    (model / "config.pbtxt").write_text("max_batch_size: 8")
    assert [2] == rejected(records, model)

    (model / "2/model.py").write_text("# 3")
    assert [] == rejected(records, model)
    (model / "2/model.py").write_text("# 2")
    (model / "shared.txt").write_text("new")
    assert [] == rejected(records, model)


def test_files_beyond_a_limit_are_compared_by_size_and_time(
    records: DecisionRecords, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "_MAX_CONTENT", 4)
    weights = model / "2/weights"
    weights.write_bytes(b"12345")
    os.utime(weights, (100, 100))
    reject(records, model)

    weights.write_bytes(b"54321")
    os.utime(weights, (200, 100.9))
    assert [2] == rejected(records, model)
    os.utime(weights, (200, 200))
    assert [] == rejected(records, model)


def test_what_was_not_on_trial_is_not_decided_on(records: DecisionRecords, model: Path) -> None:
    scanned = scan(model)

    records.keep(scanned, [Decision(2, "of other files", is_promotion=False)])

    assert [] == rejected(records, model)


def test_the_last_decision_about_the_same_content_holds(
    records: DecisionRecords, model: Path
) -> None:
    reject(records, model)
    scanned = scan(model)
    contents = scanned.version_fingerprints[2]

    records.keep(scanned, [Decision(2, contents, is_promotion=True, policy="latest")])

    selection = records.apply(scanned).selection
    assert ((), [(2, contents, "latest")]) == (selection.rejected, [*selection.promoted])


def test_the_decisions_of_this_server_come_first(records: DecisionRecords, model: Path) -> None:
    reject(records, model)
    scanned = scan(model)
    trial = scanned.selection._replace(kept=frozenset({1, 2}))

    assert () == records.apply(replace(scanned, selection=trial)).selection.rejected


def test_versions_are_forgotten_one_by_one(records: DecisionRecords, model: Path) -> None:
    reject(records, model, 1)
    reject(records, model, 2)

    records.drop("m", 1)

    assert [2] == rejected(records, model)


def test_a_directory_that_cannot_be_written_is_named(model: Path) -> None:
    records = DecisionRecords(str(model / "config.pbtxt"))

    with pytest.raises(DecisionError, match=r"config\.pbtxt/canaries': "):
        reject(records, model)
    assert [] == rejected(records, model)


def test_the_place_is_systemd_s_or_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    assert "/home/me/state/zmqtriton" == default_root()
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/zmqtriton:/var/lib/other")
    assert "/var/lib/zmqtriton" == default_root()
