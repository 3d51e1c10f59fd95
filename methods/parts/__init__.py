"""What several methods share: distances, miners, proxies, ranks, neighbourhoods, memory; and the toy examples."""
