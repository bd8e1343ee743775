"""`zmqtriton run`: one model, served while somebody writes it."""
