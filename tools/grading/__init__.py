"""Grading one notebook of one student, in processes that cannot do harm; `tools.grade` calls it.

`submission` reads what was handed in and finds out what an answer needs, `confine` closes a
process in, `stages` runs parts of the work in such processes, `checking` runs an exercise's check
on an answer's source, `page` makes the page of feedback, and `job` is all of it for one notebook.
"""
