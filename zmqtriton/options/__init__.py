"""The command line of `zmqtriton` and `tritonserver`: all options of Triton, and our own.

Nothing here prints, exits, opens a file or looks at the environment.
"""

from __future__ import annotations

from zmqtriton.options.parser import HelpRequested, OptionError, parse, with_environment
from zmqtriton.options.report import describe_options
from zmqtriton.options.result import Options
from zmqtriton.options.trace import OPENTELEMETRY, TraceOptions
from zmqtriton.options.values import RateLimitResource, Restriction, Setting

__all__ = [
    "OPENTELEMETRY",
    "HelpRequested",
    "OptionError",
    "Options",
    "RateLimitResource",
    "Restriction",
    "Setting",
    "TraceOptions",
    "describe_options",
    "parse",
    "with_environment",
]
