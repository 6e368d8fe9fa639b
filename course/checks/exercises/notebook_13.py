"""The checks of notebook 13: numbers of few bits."""
