"""`make faults OF=attacks SEED=1`: hostile clients beside fifty honest ones; see __main__.py."""
