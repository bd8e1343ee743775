"""The answers of models whose instances are forks or threads, as ZT_INSTANCES has all of them be.

Their configurations name the kind, which is left out of what is compared. A case of LEFT_OUT
differs for the reason that stands there.
"""

from __future__ import annotations

import os
import re

KIND = os.environ.get("ZT_INSTANCES", "")
_QUOTE = r"""\\*['"]"""
_KIND = rf"{_QUOTE}INSTANCES{_QUOTE}: ?{{{_QUOTE}string_value{_QUOTE}: ?{_QUOTE}{KIND}{_QUOTE}}}"
#: Alone in a message, where a configuration without parameters has no such field, and else.
_NAMED = re.compile(rf'"parameters": {{{_KIND}}}, (?="backend")|{_KIND}(?:, ?)?')

LEFT_OUT = {
    "load_not_closed": "the error shows the configuration, which has the kind",
    "cfg_open_brace": "likewise",
    "index_after_loading": "it has that error",
}


def as_of_processes(document: str) -> str:
    """Return a JSON document without the parameter."""
    return _NAMED.sub("", document) if KIND else document
