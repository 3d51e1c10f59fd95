"""One kind of table for pages, terminal and files: boards as such tables, notes below them, and their formats."""
