"""Decisions about versions that were on trial, and the versions that a load therefore serves.

A decision is kept for later servers, in a small file. It is about the content of a version,
wherever its files lie and whenever they were copied, so servers on several machines may share the
directory. Written seldom, read at each load of a model; the content of files is read only where
there is a decision to compare it with.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton import runtime_places
from zmqtriton.config import known_parameters
from zmqtriton.config.errors import ConfigError
from zmqtriton.repository.scan import (
    Promotion,
    ScannedModel,
    VersionChoice,
    choose_versions,
    version_files,
)

_FORMAT = 1
#: Number of bytes of a version that are compared by content; files beyond that are compared by size
#: and time.
_MAX_CONTENT = 64 << 20


class Decision(NamedTuple):
    """A version that was promoted, or else is left out."""

    version: int
    #: The fingerprint of the files that were on trial.
    contents: str
    is_promotion: bool
    #: The version policy at that time.
    policy: str = ""
    reason: str = ""


class KeepDecisions(NamedTuple):
    """Decisions to keep about versions that were on trial, for later servers; others to forget."""

    model: str
    #: The model's files.
    directory: str
    decisions: tuple[Decision, ...] = ()
    #: Versions whose decisions are removed.
    undecided: tuple[int, ...] = ()


def state_root() -> str:
    """Return the directory that systemd names, or the user's for what outlives a program."""
    return runtime_places.lasting("STATE", "~/.local/state")


class TriedVersions:
    """The versions of all models that were tried, by this server and by others.

    The decisions about them are in a directory, which is made when there is one to keep.
    """

    def __init__(self, root: str = "") -> None:
        trial = known_parameters.trial()
        self._root = Path(root or state_root()).absolute() / (trial.FOLDER if trial else "trials")

    def keep(
        self, scanned: ScannedModel, decisions: Sequence[Decision], undecided: Iterable[int] = ()
    ) -> str:
        """Keep decisions for later servers, forget those about other versions.

        Return why that is impossible, or "".
        """
        try:
            for version in undecided:
                for path in self._folder(scanned.name).glob(f"{version}-*.json"):
                    path.unlink(missing_ok=True)
            self._write(scanned, decisions)
        except OSError as error:
            return f"'{self._root}': {error.strerror or error}"
        return ""

    def _write(self, scanned: ScannedModel, decisions: Sequence[Decision]) -> None:
        """Write the decisions about versions whose files are still the same. Raises OSError."""
        for decision in decisions:
            if scanned.version_fingerprints.get(decision.version) != decision.contents:
                continue  # what lies there now was not on trial
            content = _digest(scanned, decision.version)
            document = {
                **decision._asdict(),
                "format": _FORMAT,
                "model": scanned.name,
                "contents": content,
                "decided_s": round(time.time(), 3),
            }
            path = self._folder(scanned.name) / f"{decision.version}-{content}.json"
            _replace(path, json.dumps(document, indent=2) + "\n")

    def with_decisions(self, scanned: ScannedModel) -> ScannedModel:
        """Return the model with the exceptions that other servers, or earlier ones, decided on.

        The decisions of this server, which the model has already, are newer.
        """
        selection, warnings = scanned.selection, list(scanned.warnings)
        of_this_server = {entry[:2] for entry in (*selection.rejected, *selection.promoted)}
        for document in self._read(scanned, warnings):
            number = document["version"]
            contents = scanned.version_fingerprints[number]
            if number in selection.kept or (number, contents) in of_this_server:
                continue
            if document["is_promotion"]:
                promotion = Promotion(number, contents, document["policy"])
                selection = selection._replace(promoted=(*selection.promoted, promotion))
            else:
                rejected = (*selection.rejected, (number, contents))
                selection = selection._replace(rejected=rejected)
                warnings.append(_why_left_out(scanned, document))
        return replace(scanned, selection=selection, warnings=tuple(warnings))

    def _read(self, scanned: ScannedModel, warnings: list[str]) -> Iterator[dict[str, Any]]:
        """Yield the decisions about the versions as they are now."""
        if scanned.code_file is not None:
            return
        # none if nothing was decided, or the directory cannot be read
        for path in sorted(self._folder(scanned.name).glob("*.json")):
            number, _, content = path.stem.partition("-")
            try:
                is_meant = int(number) in scanned.versions
                if is_meant and _digest(scanned, int(number)) == content:
                    yield _parse(path.read_text("utf-8"), int(number))
            except (OSError, ValueError) as error:
                warnings.append(f"the decision about a version in '{path}' cannot be read: {error}")

    def _folder(self, model: str) -> Path:
        return self._root / model.replace("/", "%2F")


def _parse(text: str, version: int) -> dict[str, Any]:
    """Read a decision. Raises ValueError."""
    document: dict[str, Any] = json.loads(text)
    types = {"version": int, "is_promotion": bool, "policy": str, "reason": str}
    if (
        not isinstance(document, dict)
        or document.get("format") != _FORMAT
        or any(type(document.get(name)) is not t for name, t in types.items())
        or document["version"] != version
        or not isinstance(document.get("decided_s"), (int, float))
    ):
        raise ValueError("the file is damaged, or from a newer version")
    return document


def _why_left_out(scanned: ScannedModel, document: dict[str, Any]) -> str:
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(document["decided_s"]))
    why = f" ({document['reason']})" if document["reason"] else ""
    number, trial = document["version"], known_parameters.trial()
    again = trial.again(scanned.name, number) if trial else "it was tried by an add-on that is gone"
    return (
        f"version {number} of model '{scanned.name}' is left out until its files change, by a "
        f"decision of {day}{why}; {again}"
    )


def _digest(scanned: ScannedModel, version: int) -> str:
    """Return a fingerprint of a version's files that a copy of them has, too."""
    digest, left = hashlib.blake2b(digest_size=16), _MAX_CONTENT
    for file in version_files(scanned.path, scanned.config_path, version):
        name = os.fsencode(file.relative_to(scanned.path))
        try:
            status = file.stat()
            if status.st_size <= left:
                left -= status.st_size
                content = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
            else:
                content = f"{status.st_size} {int(status.st_mtime)}"
        except OSError:
            content = "unreadable"
        digest.update(b"%d %s %s\n" % (len(name), name, content.encode()))
    return digest.hexdigest()


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole, since other processes may write it at the same time."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(text, "utf-8")
    os.replace(draft, path)


def configured_trial(config: Any, scanned: ScannedModel) -> Any:
    """Return the trial of the configuration, unless that version is missing or was decided on."""
    trial, selection = known_parameters.trial(), scanned.selection
    settings = trial.read(config) if trial else None
    if settings is None or settings.version not in scanned.versions:
        return None
    tried = settings.version, scanned.version_fingerprints[settings.version]
    decided = {entry[:2] for entry in (*selection.rejected, *selection.promoted)}
    return None if tried in decided else settings


def choose_with_trial(config: Any, scanned: ScannedModel, trial: Any) -> VersionChoice:
    """Apply the version policy to versions that were not rejected, and add those that were tried.

    While a version is tried, nothing else begins to serve.

    Raises ConfigError if no version is left.
    """
    kept = scanned.selection.kept.intersection(scanned.versions)
    if kept:
        return VersionChoice(tuple(sorted(kept)))
    available = scanned.selection.available(scanned.version_fingerprints)
    if trial is None:
        return _with_promotions(config, scanned, available)
    # it is tried against what would serve without it
    others = [n for n in available if n != trial.version] or available
    choice = _with_promotions(config, scanned, others)
    return VersionChoice(tuple(sorted({*choice.versions, trial.version})), choice.warnings)


def _with_promotions(config: Any, scanned: ScannedModel, available: Sequence[int]) -> VersionChoice:
    """Apply the version policy, and add a promoted version that it leaves out.

    A promotion counts if the policy is still the same, and chooses no higher version.
    """
    policy = version_policy(config)
    promoted = [
        number
        for number, contents, of_policy in scanned.selection.promoted
        if of_policy == policy
        and number in available
        and scanned.version_fingerprints[number] == contents
    ]
    try:
        choice = choose_versions(config, available)
    except ConfigError:
        if not promoted:
            raise
        return VersionChoice((max(promoted),))
    higher = {number for number in promoted if number > max(choice.versions)}
    return VersionChoice(tuple(sorted({*choice.versions, *higher})), choice.warnings)


def version_policy(config: Any) -> str:
    """Return the version policy as text, to notice that it has changed."""
    return str(config.version_policy).strip()


def policy_versions(config: Any, present: Iterable[int]) -> frozenset[int]:
    """Return the versions that the policy alone would choose; none if it cannot choose."""
    try:
        return frozenset(choose_versions(config, present).versions)
    except ConfigError:
        return frozenset()
