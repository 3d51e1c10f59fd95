"""Many cells as one table: which there are, what state each is in, what the rest costs, and doing it."""
