"""The server's two daemons, supervisor and broker, and its command lines.

Nothing outside this package imports it: the other processes know the wire alone. The version
lives in the floor, which every interpreter has.
"""

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from zmqtriton_floor import __version__ as __version__
from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton.embedded.connection import connect as connect
    from zmqtriton.embedded.server import Server as Server
else:
    _own_name = lazy_names(__name__)

    def __getattr__(name):
        # `from zmqtriton import addons` asks here first: it imports the file when this has raised
        if name in ("Server", "connect") or PathFinder.find_spec(f"{__name__}.{name}", __path__):
            return _own_name(name)
        from zmqtriton.addons import load_public

        return load_public(name)

    class _NamesOfAddOns:
        """The last finder of imports: finds modules below `zmqtriton` whose files add-ons have."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if not name.startswith("zmqtriton."):
                return None
            from zmqtriton.public_names import find_spec

            return find_spec(name)

    sys.meta_path.append(_NamesOfAddOns)
