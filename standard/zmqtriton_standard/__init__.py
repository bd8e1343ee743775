"""Add-ons that every operator expects, a folder each; see `zmqtriton.sdk`."""
