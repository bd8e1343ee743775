"""The rights of clients, as operators write them and servers read them."""
