"""One kind of table for pages, terminal and files, and the formats it is written in."""
