"""A look at a dataset before anything is trained: its files, a sheet of its images, how hard it is untrained."""
