"""The exercises' checks, a module a notebook; and what several notebooks' exercises share.

Importing this registers all of them: checks.run.check.registered.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if _module.name.startswith("notebook_"):
        importlib.import_module(f"{__name__}.{_module.name}")
