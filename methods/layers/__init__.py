"""Layers that methods add to a backbone: adapters, prompts, adversaries, proxies in a hierarchy, a momentum encoder."""
