"""The option that names a file of options."""

from __future__ import annotations

from zmqtriton.options import kinds as a
from zmqtriton.options import values as read

CONFIG_OPTION = a.text(
    "config",
    "File in TOML with options, each by its name: http-port = 8000. Variables such as "
    "ZMQTRITON_OPTION_HTTP_PORT have options, too. The command line counts before "
    "variables, these before the file; an option is taken whole from the first that has it.",
    read=read.non_empty_text("Error: empty argument for --config"),
)
