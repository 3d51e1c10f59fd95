"""From image files to batches on the device; the weights of backbones and their frozen features."""
