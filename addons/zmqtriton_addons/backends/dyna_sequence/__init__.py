"""The backend `dyna_sequence`: sums of sequences, the last one with the sequence's number."""
