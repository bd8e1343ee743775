"""`zmqtriton new NAME`: writes a first model, its test and a client, and says what to type next."""
