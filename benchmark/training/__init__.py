"""One training run: its course, optimiser, precision, compiling, frozen norms, batches in shares, checkpoints."""
