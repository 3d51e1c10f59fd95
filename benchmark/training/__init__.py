"""What a training run stands on: precision, compiling, folded norms, checkpoints, the log."""
