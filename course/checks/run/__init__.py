"""Running an answer, so that it harms nobody."""
