"""The answers that `make test` leaves out: those below `# %% more` in tests/candidates/."""

import two_sided

STEMS = [path.stem for path in sorted((two_sided.ROOT / "notebooks").glob("[0-9]*.ipynb"))]
globals().update(two_sided.classes(
    "TestMore", [stem for stem in STEMS if any(c.more for c in two_sided.candidates(stem))],
    more=True))
