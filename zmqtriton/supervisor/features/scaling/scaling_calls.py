"""The control call about the number of a model's instances. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zmqtriton.config.autoscale import AutoscaleLimits
from zmqtriton.supervisor.control.arguments import check_names, required_model_name
from zmqtriton.supervisor.control.verbs import ControlCall
from zmqtriton.supervisor.models.blueprint import Scale
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import describe_instances
from zmqtriton.supervisor.models.version import serving_generations
from zmqtriton_floor.errors import InvalidArgument, NotFound, ZmqTritonError


def is_change(arguments: dict[str, Any]) -> bool:
    """True for a call that scales a model; others show its instances."""
    return "count" in arguments


class ScalingCalls:
    def __init__(
        self, models: Mapping[str, Model], describe_scaled: Callable[[Model], dict[str, Any]]
    ) -> None:
        """Set up; `describe_scaled` describes how a model is scaled by its load, if it is."""
        self._models = models
        self._describe_scaled = describe_scaled
        #: The last number that was asked for, by model and group.
        self._last: dict[tuple[str, str], Scale] = {}

    def handle(self, call: ControlCall) -> None:
        """Scale a model; the answer is its instances, now or later, or the error."""
        model = self._find(call.arguments)
        if is_change(call.arguments):
            self._scale(model, call.arguments, call.answer)
        else:
            call.answer(self._describe(model))

    def _describe(self, model: Model) -> dict[str, Any]:
        return describe_instances(model) | self._describe_scaled(model)

    def _find(self, arguments: dict[str, Any]) -> Model:
        name = required_model_name(arguments)
        if name not in self._models:
            raise NotFound(f"there is no model '{name}'")
        return self._models[name]

    def _scale(
        self, model: Model, arguments: dict[str, Any], answer: Callable[[Any], None]
    ) -> None:
        check_names("a scale", arguments, ("model", "count", "group"))
        count, group = arguments["count"], arguments.get("group", "")
        if type(count) is not int or type(group) is not str:
            raise InvalidArgument("'count' must be an integer, and 'group' a string")

        limits = limits_of(model)
        if limits is not None and not limits.minimum <= count <= limits.maximum:
            raise InvalidArgument(
                f"model '{model.name}' is scaled by its load, to {limits.minimum} - "
                f"{limits.maximum} instances; {count} is not among them"
            )

        key, scale = (model.name, group), Scale(count, group)
        self._last[key] = scale

        def done(error: ZmqTritonError | None) -> None:
            later = self._last.get(key)
            if later is None or later is scale:
                self._last.pop(key, None)
                answer(error or self._describe(model))
            else:
                answer(error or {**self._describe(model), "overtaken_by": later.instances})

        model.scale(scale, done)


def limits_of(model: Model) -> AutoscaleLimits | None:
    """Return the bounds of a model that serves and is scaled by its load."""
    bounds = [each.blueprint.autoscale for each in serving_generations(model.versions)]
    return next((limits for limits in bounds if limits is not None), None)
