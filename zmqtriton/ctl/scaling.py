"""`zmqtriton-ctl scale`: how many instances a model has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

#: Calls the server with the arguments of the verb `scale`.
Scale = Callable[[click.Context, dict[str, Any]], dict[str, Any]]


def build_command(scale_model: Scale) -> click.Command:
    @click.command()
    @click.argument("model")
    @click.argument("count", type=int)
    @click.option("--group", default="", help="The instance group, for a model with several.")
    @click.pass_context
    def scale(context: click.Context, model: str, count: int, group: str) -> None:
        """Give MODEL COUNT instances, without a reload and without a failed request.

        New ones are started before the others may end, and those finish what they execute. Works in
        every model control mode. It holds over reloads until MODEL is unloaded, or another
        instance_group is configured.
        """
        found = scale_model(context, {"model": model, "count": count, "group": group})
        for version, counts in found["versions"].items():
            ready = f"{counts['ready']} of {counts['instances']} instances ready"
            click.echo(f"scaled {model}:{version}: {ready}")

    return scale
