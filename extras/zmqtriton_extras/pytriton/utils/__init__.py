"""The workspace, keyword-only dataclasses and paths, as scripts import them."""
