"""The broker, the frontends and the helpers: started, replaced, informed, shut down."""
