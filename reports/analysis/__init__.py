"""What the records say: boards and their statistics, comparisons, structure, and the papers' own tables."""
