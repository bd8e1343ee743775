"""The configurations to compare: that of a directory, and variants with other values.

Values are checked as a load would check them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zmqtriton.config import (
    ConfigError,
    apply_group_defaults,
    instance_specs,
    load_config,
    read_config,
    to_dict,
    to_json,
)
from zmqtriton.repository import CONFIG_FILE


class Change:
    """`PATH=VALUE,VALUE`: a field, by the names on the way to it, and the values to try."""

    def __init__(self, text: str) -> None:
        path, separator, values = text.partition("=")
        self.path = path.strip().split(".")
        #: commas inside a list separate nothing
        self.values = [self._value(word) for word in re.split(r",(?![^\[]*\])", values)]
        if not separator or not all(self.path):
            raise ConfigError(f"'{text}' is not of the form FIELD.FIELD=VALUE,VALUE")

    @staticmethod
    def _value(word: str) -> Any:
        try:
            return json.loads(word)
        except ValueError:
            return word.strip()


class Setting:
    """A checked configuration, with what distinguishes it from the others."""

    def __init__(self, label: str, config: Any) -> None:
        self.label = label
        self.config = to_json(config)
        self.instances = [one.name for one in instance_specs(config) if not one.passive]
        self.is_sequential = config.HasField("sequence_batching")
        self.has_affinity = "AFFINITY" in config.parameters


def settings(directory: Path, changes: Sequence[Change]) -> Iterator[Setting]:
    """Return each combination of the changes. Raises ConfigError."""
    name = directory.resolve().name
    original = _read_with_groups(name, directory)
    for values in itertools.product(*(change.values for change in changes)):
        document = to_dict(original)
        for change, value in zip(changes, values, strict=True):
            _put(document, change.path, value)
        config = load_config(name, directory, None, override=json.dumps(document))
        if config.HasField("ensemble_scheduling"):
            raise ConfigError("an ensemble has no instances; simulate the models of its steps")
        apply_group_defaults(config)
        pairs = zip(changes, values, strict=True)
        label = " ".join(f"{change.path[-1]}={value}" for change, value in pairs)
        yield Setting(label or name, config)


def _read_with_groups(name: str, directory: Path) -> Any:
    """Read the configuration as it is written, with all instance groups. Raises ConfigError.

    Other defaults are filled in after a change, since they may depend on what is changed: preferred
    batch sizes do on the largest one.
    """
    complete = load_config(name, directory, directory / CONFIG_FILE)
    apply_group_defaults(complete)
    written = read_config(directory / CONFIG_FILE)
    written.ClearField("instance_group")
    written.instance_group.extend(complete.instance_group)
    return written


def _put(document: Any, path: Sequence[str], value: Any) -> None:
    """Set a value, in each element of lists on the way."""
    first, *rest = path
    for one in document if isinstance(document, list) else [document]:
        if not isinstance(one, dict):
            raise ConfigError(f"the configuration has no field '{first}'")
        if not rest:
            one[first] = value
        else:
            _put(one.setdefault(first, {}), rest, value)
