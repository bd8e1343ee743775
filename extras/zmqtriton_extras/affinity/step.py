"""The step that adds a number to each request to a model with a rule; no other model has it."""

from __future__ import annotations

from typing import Any

from zmqtriton.sdk.frontend import Ask, CheckedRequest, ModelVersion
from zmqtriton.sdk.models import config_parameter
from zmqtriton_extras.affinity.rule import AFFINITY, HEADER, Rule, number_of, parse, value_in


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
        return checked._replace(options=checked.options._replace(placement=number_of(value)))

    def _value(self, ask: Ask, checked: CheckedRequest) -> Any:
        """Return the bytes of the request that the rule names; None if it lacks them."""
        if self._rule.source != HEADER:
            return value_in(self._rule, checked.body)
        text = None if ask.header is None else ask.header(self._header)
        return text.encode() if text else None
