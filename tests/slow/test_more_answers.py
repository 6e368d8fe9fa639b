"""The answers that `make test` leaves out: those below `# %% more` in tests/candidates/."""

import two_sided

# a class each: pytest-xdist keeps a class on one worker
for _path in sorted((two_sided.ROOT / "notebooks").glob("[0-9]*.ipynb")):
    def _test(self, record_property, stem: str = _path.stem) -> None:
        two_sided.require_as_expected(stem, record_property, more=True)

    if any(candidate.more for candidate in two_sided.candidates(_path.stem)):
        _name = f"TestMore{_path.stem[:2]}"
        globals()[_name] = type(_name, (), {"test_two_sided": _test})
