"""The backend `sequence`: sums of sequences, to test clients with."""
