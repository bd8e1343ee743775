"""Commands for people who write models and run servers; a server needs none of them."""
