"""The connection: the name of `zmqtriton_addons.door.client.connection`."""

from zmqtriton_addons.door.client.connection import Door as Door
