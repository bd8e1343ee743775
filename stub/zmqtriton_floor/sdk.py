"""The page of the sdk for code in models' own Pythons, from 3.8 on, which have nothing else of us.

Backends and tasks of add-ons import this, and no `zmqtriton.sdk`, which has the same names.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton_floor import documents as documents
    from zmqtriton_floor.descriptions import (
        clipped as clipped,
        described as described,
        shown as shown,
    )
    from zmqtriton_floor.tool_listener import ToolListener as ToolListener
else:
    __getattr__ = lazy_names(__name__)
