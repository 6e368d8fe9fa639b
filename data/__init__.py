"""The data: where they are and whose (store), how they come (fetch), what stands in for them."""
