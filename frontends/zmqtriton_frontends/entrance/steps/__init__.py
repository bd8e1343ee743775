"""The features of requests, each a step that the entrance calls and does not know."""
