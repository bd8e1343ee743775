"""Models that are loaded on demand, and evicted when they are idle or room is needed."""
