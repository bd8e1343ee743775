"""The command line of `zmqtriton` and `tritonserver`: all options of Triton, and our own.

Nothing here prints, exits, opens a file or looks at the environment.
"""

from zmqtriton.options.parser import (
    HelpRequested,
    check_document,
    parse,
    with_environment,
)
from zmqtriton.options.report import describe_options
from zmqtriton.options.result import Options
from zmqtriton.options.sources import COMMAND
from zmqtriton.options.table import OPTIONS_BY_NAME
from zmqtriton.options.values import (
    CATEGORIES,
    OPENTELEMETRY,
    BadValue,
    OptionError,
    RateLimitResource,
    Restriction,
    Setting,
    TraceOptions,
    integer,
    integer_between,
    one_of,
    option_of,
    pair,
    restriction,
)

__all__ = [
    "CATEGORIES",
    "COMMAND",
    "OPENTELEMETRY",
    "OPTIONS_BY_NAME",
    "BadValue",
    "HelpRequested",
    "OptionError",
    "Options",
    "RateLimitResource",
    "Restriction",
    "Setting",
    "TraceOptions",
    "check_document",
    "describe_options",
    "integer",
    "integer_between",
    "one_of",
    "option_of",
    "pair",
    "parse",
    "restriction",
    "with_environment",
]
