"""Access by bearer tokens: the tokens of a file, what each is good for, and who presents others."""
