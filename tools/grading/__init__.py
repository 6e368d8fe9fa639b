"""Grading one notebook of one student, in processes that cannot do harm; `tools.grade` calls it.

`submission` reads what was handed in, and `plan` finds out what each answer in it needs. `job` is
one notebook of one student, and its result. `server` is the process that grades jobs: it runs the
parts of one in children that `confine` closes in. `checking` runs an exercise's check on an
answer's source, and `integrity` watches what that answer changes; `page` makes the page of
feedback, with the outputs of `kernel`. `fleet` gives jobs to a Dask cluster, whose machines need
the same versions, see `course`.
"""
