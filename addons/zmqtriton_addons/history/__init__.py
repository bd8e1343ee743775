"""The history of the last hour: samples of the server and its models, for the page."""
