"""Grading one notebook of one student, in processes that cannot do harm; `tools.grade` calls it.

`submission` reads what was handed in, `plan` finds out what each answer needs, `checking` runs an
exercise's check on an answer's source, and `page` makes the page of
feedback, with what `kernel` gives. Each of these is a part of a `job`, in a child of the `server`
that `confine` closes in. `fleet` gives jobs to a Dask cluster.
"""
