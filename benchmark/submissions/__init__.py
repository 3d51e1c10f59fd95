"""Results that others send: embeddings scored on a ladder, packs with a card, and how the board checks them."""
