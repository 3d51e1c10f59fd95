"""What every other folder uses: errors, the working folder, atomic files, signals, terminal, devices, provenance."""
