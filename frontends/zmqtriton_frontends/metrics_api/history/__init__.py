"""The history of the last hour: what was sampled of the server and its models, for the page."""
