"""Models that requests load, and that are evicted when they are idle or room is needed."""
