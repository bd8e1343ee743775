"""Add-ons for those who look for them, a house each; see `zmqtriton.sdk`."""
