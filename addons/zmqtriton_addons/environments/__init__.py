"""The Pythons of models: checked, unpacked and built, in a process that the supervisor starts."""
