"""What the process imports that forks the jobs: all they need, once; it ends when the grader does.

Only multiprocessing's forkserver imports this.
"""

import signal

from tools.grading import checking, confine, page

__all__ = ["checking", "page"]

confine.end_with_parent(signal.SIGKILL)
