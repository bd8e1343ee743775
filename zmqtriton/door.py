"""The client of the door, whose code is an add-on; this is the name that programs import."""

from zmqtriton_extras.door.client.connection import Door as Door
