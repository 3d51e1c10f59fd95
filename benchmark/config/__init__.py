"""What is to be done: protocols, studies, and the run specs that follow from them."""
