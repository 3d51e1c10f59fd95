"""The application: command line, data, training, measuring, running."""
