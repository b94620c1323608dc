"""The command line: a few verbs."""
