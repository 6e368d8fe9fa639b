"""What wrote the files of data/ that are committed; each runs once in a while, by hand."""
