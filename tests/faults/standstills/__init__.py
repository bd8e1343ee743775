"""All that could make loops wait, as a part of `make faults`; see rounds.py."""
