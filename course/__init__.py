"""What the notebooks import besides helpers: checks, pictures, kernels, and what these use."""
