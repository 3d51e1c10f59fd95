"""What several methods share: backbones, miners, batch samplers, memory."""
