"""The data plane: queues requests, gives them to stubs and routes the answers. It never blocks."""
