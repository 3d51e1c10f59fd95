"""The application: command line, data, training, measuring, running. `CONTRIBUTING.md` has a map of its rooms."""

__version__ = "0.1.0"
"""The one place of the version: pyproject.toml reads it here, so that a checkout knows it without an installation."""
