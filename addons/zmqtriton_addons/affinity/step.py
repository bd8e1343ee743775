"""The step that marks each request to a model with a rule. Other models' requests have none."""

from __future__ import annotations

from typing import Any

from zmqtriton_addons.affinity.rule import (
    AFFINITY,
    HEADER,
    PARAMETER,
    Rule,
    number_of,
    parse,
)
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.signature import READABLE, config_parameter
from zmqtriton_floor.wire import Tensor
from zmqtriton_frontends.entrance import Ask
from zmqtriton_frontends.inference import CheckedRequest, ModelVersion

#: The length before an element of BYTES.
_PREFIX_BYTES = 4
_STRINGS = BY_CONFIG_NAME["TYPE_STRING"].number


def steps_of(version: ModelVersion) -> tuple[Mark, ...]:
    """Return the steps of requests to one version of a model."""
    if f'"{AFFINITY}"' not in version.config_text:
        return ()
    rule = parse(config_parameter(version.config, AFFINITY))
    return () if rule is None else (Mark(rule),)


class Mark:
    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._header = rule.name.lower().encode()

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        value = self._value(ask, checked)
        if value is None:
            return checked
        return checked._replace(options=checked.options._replace(affinity=number_of(value)))

    def _value(self, ask: Ask, checked: CheckedRequest) -> Any:
        """Return bytes of the request; None if it has none of what the rule names."""
        source, name, size = self._rule
        if source == HEADER:
            text = None if ask.header is None else ask.header(self._header)
            return text.encode() if text else None
        if source == PARAMETER:
            value = checked.body.parameters.get(name)
            return None if value is None else str(value).encode()
        return next((_bytes(one, size) for one in checked.body.inputs if one.name == name), None)


def _bytes(tensor: Tensor, size: int) -> Any:
    """Return the first bytes of a tensor, of strings those of the first one; None on a GPU."""
    if type(tensor.data) not in READABLE:
        return None
    data = memoryview(tensor.data).cast("B")
    if not size:
        return data
    if tensor.datatype == _STRINGS:
        length = int.from_bytes(data[:_PREFIX_BYTES], "little")
        data = data[_PREFIX_BYTES : _PREFIX_BYTES + length]
    return data[:size]
