"""Batch samplers: which training images come together in a batch."""
