"""What every room stands on: errors, the working folder, atomic files, signals, provenance, precision."""
