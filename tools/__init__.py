"""The tools that make and maintain the course; run each with `python -m tools.NAME`."""

import sys

# a grammar that jsonschema reads whenever nbformat is imported: saves 1.3 of 1.4 seconds
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
