"""The code of a model of routes: it runs in the model's own Python, from 3.8 on."""
