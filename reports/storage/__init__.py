"""How runs lie on disk: schema, earlier schemas, packed records, results of queries, paths that are safe to write."""
