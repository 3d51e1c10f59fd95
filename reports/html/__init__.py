"""The pages of the leaderboard: what stands on each, and how tables and figures become HTML."""
