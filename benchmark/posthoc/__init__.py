"""What is done with finished runs: few-shot adaptation, other datasets, ensembles, a look inside."""
