"""The application: command line, data, training, measuring, running. `CONTRIBUTING.md` has a map of its rooms."""
