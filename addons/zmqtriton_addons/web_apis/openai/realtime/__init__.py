"""WebSockets at /v1/realtime: a chat in the events of OpenAI's Realtime API, as far as texts go."""
