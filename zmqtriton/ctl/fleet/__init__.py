"""Commands for servers on several machines, over HTTP: their places, and their operations."""
