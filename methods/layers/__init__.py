"""Layers that methods add to a backbone: adapters, prompts, adversaries, a momentum encoder."""
