"""Grading one notebook of one student, in a sandbox; `tools.grade` calls it.

`inputs` finds what was handed in, `submission` reads it, `plan` finds out what each answer needs.
`grader` gives a `job` to a `box`; `inside` works in it: `shell` runs cells, `page` makes the page
of feedback. `fleet` gives jobs to a Dask cluster.
"""
