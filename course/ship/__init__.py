"""The course's kernel without TVM's runtime: what it is compiled to, and what runs that."""
