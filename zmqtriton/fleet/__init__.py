"""The fleet, whose code is an add-on; these are the names that scripts import."""
