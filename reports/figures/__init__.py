"""How results are drawn: the frame that all figures share, and the figures themselves."""
