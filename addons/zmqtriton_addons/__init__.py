"""The add-ons that come with the server, which its core does not know: `table.py` declares them."""
