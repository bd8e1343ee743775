"""Sequences: their instances, their batches, and their ends."""
