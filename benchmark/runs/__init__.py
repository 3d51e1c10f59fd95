"""The runs of a study as a matrix of cells: which there are, their states, what the rest costs, and doing it."""
