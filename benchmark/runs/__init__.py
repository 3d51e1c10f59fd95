"""The runs of a study: their matrix (a method x a split x a seed each), their states, what the rest costs, doing it."""
