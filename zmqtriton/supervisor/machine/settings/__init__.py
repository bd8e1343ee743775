"""The settings of the processes, made of the options; and secrets."""
