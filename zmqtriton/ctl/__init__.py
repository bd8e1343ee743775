"""`zmqtriton-ctl`: shows what a running server on this machine does, and commands it.

Talks over the control socket in the server's runtime directory, and needs nothing else of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "asking": "check_name run_with_client",
    "explanations": "explain",
    "failing": "EXIT_REFUSED exit_on_error",
    "live_line": "LiveLine",
    "loading": "shown_load",
    "output": "form_option print_document print_error print_note print_result with_format",
    "process_use": "format_bytes use_of_models",
    "selecting": "MODEL CommandGroup",
    "status": "describe_log needs_attention",
    "tables": "format_duration print_table shorten terminal_width",
}

if TYPE_CHECKING:
    from zmqtriton.ctl.asking import check_name, run_with_client
    from zmqtriton.ctl.explanations import explain
    from zmqtriton.ctl.failing import EXIT_REFUSED, exit_on_error
    from zmqtriton.ctl.live_line import LiveLine
    from zmqtriton.ctl.loading import shown_load
    from zmqtriton.ctl.output import (
        form_option,
        print_document,
        print_error,
        print_note,
        print_result,
        with_format,
    )
    from zmqtriton.ctl.process_use import format_bytes, use_of_models
    from zmqtriton.ctl.selecting import MODEL, CommandGroup
    from zmqtriton.ctl.status import describe_log, needs_attention
    from zmqtriton.ctl.tables import format_duration, print_table, shorten, terminal_width
else:
    __getattr__ = lazy_names(__name__, _NAMES)
