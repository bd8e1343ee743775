"""`zmqtriton-ctl`: shows what a running server on this machine does, and commands it.

Talks over the control socket in the server's runtime directory, and needs nothing else of it.
"""

from typing import TYPE_CHECKING

from zmqtriton.sdk import AddOn
from zmqtriton_floor.lazy_names import lazy_names

ADDON = AddOn(
    "ctl",
    ctl={
        "clients": ".connections:clients",
        "completion": ".main:completion",
        "config": ".status:config",
        "disconnect": ".connections:disconnect",
        "drain": ".drains:drain",
        "env": ".environments:env",
        "infer": ".inferring:infer",
        "load": ".loading:load",
        "log-settings": ".logs:log_settings",
        "logs": ".logs:logs",
        "models": ".status:models",
        "reload": ".loading:reload",
        "replace": ".replacing:replace",
        "repository": ".loading:repository",
        "restart": ".loading:restart",
        "scale": ".loading:scale",
        "servers": ".status:servers",
        "sleep": ".loading:sleep",
        "stacks": ".stacks:stacks",
        "stats": ".statistics:stats",
        "status": ".status:status",
        "top": ".statistics:top",
        "undrain": ".drains:undrain",
        "unload": ".loading:unload",
        "wait": ".waiting:wait",
        "wake": ".loading:wake",
    },
    offers={
        "ctl.group": {
            "Look": "clients config models servers stats status top",
            "Health and logs": "log-settings logs wait",
            "Load and change models": "env load reload repository restart scale sleep unload wake",
            "Send requests": "disconnect infer",
            "Debug a model": "stacks",
            "Drain and replace servers": "drain replace undrain",
            "Several servers": "",
            "Shell": "completion",
        }
    },
)

#: The names for other rooms, by module.
_NAMES = {
    "asking": "EXIT_REFUSED change_model exit_on_error run_with_client",
    "loading": "shown_load",
    "output": (
        "LiveLine form_option print_document print_error print_note print_result with_format"
    ),
    "selecting": "MODEL CommandGroup seconds_option",
    "status": "use_of_models",
    "tables": "print_table shorten terminal_width",
}

if TYPE_CHECKING:
    from zmqtriton_standard.ctl.asking import (
        EXIT_REFUSED,
        change_model,
        exit_on_error,
        run_with_client,
    )
    from zmqtriton_standard.ctl.loading import shown_load
    from zmqtriton_standard.ctl.output import (
        LiveLine,
        form_option,
        print_document,
        print_error,
        print_note,
        print_result,
        with_format,
    )
    from zmqtriton_standard.ctl.selecting import MODEL, CommandGroup, seconds_option
    from zmqtriton_standard.ctl.status import use_of_models
    from zmqtriton_standard.ctl.tables import print_table, shorten, terminal_width
else:
    __getattr__ = lazy_names(__name__, _NAMES)
