"""WebSockets: requests and responses of a model in both directions, for browsers and others."""
