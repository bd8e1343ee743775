"""Control calls that steer models while they serve: how many instances a model has. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zmqtriton.supervisor.control.arguments import check_names, required_model_name
from zmqtriton.supervisor.features.scaling.autoscaler import Autoscaler, limits_of
from zmqtriton.supervisor.models.blueprint import Scale
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import describe_instances
from zmqtriton_floor.errors import InvalidArgument, NotFound, ZmqTritonError

SCALE = "scale"
VERBS = frozenset({SCALE})


class Steering:
    def __init__(self, models: Mapping[str, Model], autoscaler: Autoscaler) -> None:
        self._models = models
        self._autoscaler = autoscaler

    def handle(self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """Steer a model; `answer` gets its instances, now or later, or the error."""
        model = self._find(arguments)
        if "count" in arguments:
            self._scale(model, arguments, answer)
        else:
            answer(self._describe(model))

    def _describe(self, model: Model) -> dict[str, Any]:
        return describe_instances(model) | self._autoscaler.describe(model)

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
        if limits is not None and not limits.least <= count <= limits.most:
            raise InvalidArgument(
                f"model '{model.name}' is scaled by its load, to {limits.least} - {limits.most} "
                f"instances; {count} is not among them"
            )

        def done(error: ZmqTritonError | None) -> None:
            answer(error or self._describe(model))

        model.scale(Scale(count, group), done)
