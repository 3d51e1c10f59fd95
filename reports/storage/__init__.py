"""How runs lie on disk: schema, earlier schemas, many records packed in one file, results of queries."""
