"""Exercises as specifications: inputs, what is right, and the smallest example of what is not."""
