"""From records to the leaderboard: the results that it ranks, its pages, its versions, how far each study is."""
