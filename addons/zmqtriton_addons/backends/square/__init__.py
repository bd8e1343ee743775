"""The backend `square`: as many responses as the input says."""
