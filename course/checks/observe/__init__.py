"""Looking at what an answer made, did and called."""
