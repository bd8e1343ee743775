"""`zmqtriton-ctl log-settings`: which lines a running server logs, and in which format."""

from __future__ import annotations

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S
from zmqtriton_addons.ctl import print_result, run_with_client, with_format


@click.command("log-settings")
@click.option("--info/--no-info", default=None, help="Log messages of level info.")
@click.option("--warning/--no-warning", default=None, help="Log messages of level warning.")
@click.option("--error/--no-error", default=None, help="Log messages of level error.")
@click.option(
    "--verbose",
    type=click.IntRange(0),
    metavar="LEVEL",
    help="Level of verbose messages; 0 turns them off.",
)
@click.option(
    "--format", type=click.Choice(["default", "ISO8601", "json"]), help="Form of the lines."
)
@with_format
@click.pass_context
def log_settings(
    context: click.Context,
    *,
    info: bool | None,
    warning: bool | None,
    error: bool | None,
    verbose: int | None,
    format: str | None,
    form: str,
) -> None:
    """Show or change what the server's processes log."""
    options = {
        "log_info": info,
        "log_warning": warning,
        "log_error": error,
        "log_verbose_level": verbose,
        "log_format": format,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    settings = run_with_client(
        context,
        lambda client: client.call("log.settings", {"changes": changes}, QUICK_TIMEOUT_S),
        to_change=bool(changes),
    )
    lines = [
        f"{name} {str(value).lower() if isinstance(value, bool) else value}".strip()
        for name, value in settings.items()
    ]
    print_result(form, settings, "\n".join(lines))
