"""The data plane: queues requests, gives them to stubs, routes the answers. Blocks on nothing."""
