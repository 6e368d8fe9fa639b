"""What the course is made and kept with; run each with `python -m tools.NAME`."""

import sys

# nbformat imports jsonschema, which reads the grammar of internationalised addresses, 1.5 seconds
# long, for a format that no notebook has; it goes on without where there is no such package
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
