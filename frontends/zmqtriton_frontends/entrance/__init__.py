"""The entrance of requests: all that happens to one, whatever its protocol, until it is sent.

A protocol turns bytes into an `Ask`, and an answer into bytes; `Entrance` does what lies between.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "ask": "Ask Content Division TakesLong",
    "entrance": "Entrance",
    "reports": "REPORT_HEADERS are_wanted",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.entrance.ask import Ask, Content, Division, TakesLong
    from zmqtriton_frontends.entrance.entrance import Entrance
    from zmqtriton_frontends.entrance.reports import REPORT_HEADERS, are_wanted
else:
    __getattr__ = lazy_names(__name__, _NAMES)
