"""Commands for servers on several machines, over HTTP: where they are, and what is done to them."""
