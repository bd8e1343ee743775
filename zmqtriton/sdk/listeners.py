"""Listening sockets for a person's tool, such as an editor, on the same machine.

An add-on that waits for one puts a `ToolListener` around its socket; its docstring has the law.
`peer_of` and `user_of_client` name the user at the other end of a unix socket and of TCP. A task,
which runs in a model's Python, imports the class from `zmqtriton_floor.tool_listener`.
"""

from __future__ import annotations

from zmqtriton_floor.tool_listener import ToolListener, peer_of
from zmqtriton_frontends.process.peer_user import user_of_client

__all__ = ["ToolListener", "peer_of", "user_of_client"]
