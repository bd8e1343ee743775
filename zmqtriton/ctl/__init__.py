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
    "inferring.options": "RequestOptions with_request_options",
    "inferring.requests": "PreparedRequest",
    "output": "form_option print_document print_error print_note with_format",
    "process_use": "format_bytes",
    "live_line": "LiveLine",
    "selecting": "MODEL CommandGroup",
    "stacks": "read_stacks",
    "status": "describe_log needs_attention",
    "tables": "format_duration print_table",
}

if TYPE_CHECKING:
    from zmqtriton.ctl.asking import check_name, run_with_client
    from zmqtriton.ctl.explanations import explain
    from zmqtriton.ctl.failing import EXIT_REFUSED, exit_on_error
    from zmqtriton.ctl.inferring.options import RequestOptions, with_request_options
    from zmqtriton.ctl.inferring.requests import PreparedRequest
    from zmqtriton.ctl.live_line import LiveLine
    from zmqtriton.ctl.output import (
        form_option,
        print_document,
        print_error,
        print_note,
        with_format,
    )
    from zmqtriton.ctl.process_use import format_bytes
    from zmqtriton.ctl.selecting import MODEL, CommandGroup
    from zmqtriton.ctl.stacks import read_stacks
    from zmqtriton.ctl.status import describe_log, needs_attention
    from zmqtriton.ctl.tables import format_duration, print_table
else:
    __getattr__ = lazy_names(__name__, _NAMES)
