"""Counters and measurements, and the reports made of them."""
