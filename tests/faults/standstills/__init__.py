"""`python -m tests.faults.standstills`: all that could make loops wait; see rounds.py."""
