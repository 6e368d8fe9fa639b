"""The words: expected, came, look at; in English and in Chinese."""
