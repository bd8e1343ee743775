"""A model from its files to its instances: loads, generations, instances, unloads."""
