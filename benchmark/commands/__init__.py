"""The commands of `oodml`: one file each, holding a click command named `command`.

A command file imports nothing heavy at its top, so that `oodml --help` answers at once.
"""
