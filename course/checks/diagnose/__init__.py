"""Finding which layer of a model differs, and why."""
