"""Holding what came against what is right, and against what mistakes give."""
