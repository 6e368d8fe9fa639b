"""What the site says of the project: its address, its commit, its versions."""

import functools
import re

from course import present
from course.words import ROOT
from data.versions import pins

_command = functools.cache(lambda: present.need("git").command)  # its line is said once


def _git(*words: str) -> str:
    if not (git := _command()):
        return ""
    done = present.run([*git, "-C", str(ROOT), *words], check=False)
    return done.stdout.decode().strip() if done.returncode == 0 else ""


def web_address(remote: str) -> str | None:
    """Return the web address of a git remote without names and passwords; None for a folder."""
    if match := re.fullmatch(r"(?:https?://|ssh://)(?:[^@/]*@)?([^/:]+)(?::\d+)?/(.+?)(?:\.git)?/?",
                             remote) or re.fullmatch(r"[\w.-]+@([^/:]+):(.+?)(?:\.git)?/?", remote):
        return f"https://{match[1]}/{match[2]}"
    return None


def repository() -> str | None:
    """Return the repository's web address, or None where nobody has said it.

    From the git remote `origin`, else from the line `repository-code:` of CITATION.cff.
    """
    if found := web_address(_git("remote", "get-url", "origin")):
        return found
    said = re.search(r"^repository-code: *[\"']?([^\"'\s]+)",
                     (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    return web_address(said[1]) if said else None


def on_github() -> tuple[str, str] | None:
    """Return the repository's owner and name where it is on GitHub."""
    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", repository() or "")
    return (found[1], found[2]) if found else None


def site_address() -> str:
    """Return where the workflow publishes the site, with "/" at its end; "" where that is unknown.

    https://docs.github.com/pages: OWNER.github.io/NAME, without NAME where that is the former.
    """
    if not (known := on_github()):
        return ""
    owner, name = known
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def built_from() -> str:
    """Return the commit and the main versions in one line, for the foot of every page."""
    said = [f"{name} {pins()[name]}" for name in ("apache-tvm", "torch")]
    if commit := _git("rev-parse", "--short=10", "HEAD"):
        said.append(commit)
    return " · ".join(said)
