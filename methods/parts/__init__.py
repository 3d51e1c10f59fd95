"""What several methods share: distances, miners, proxies, ranks, neighbourhoods, memory."""
