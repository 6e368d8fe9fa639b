"""What the site says about the project: its address, its commit, its versions."""

import functools
import re

from course import present
from course.words import ROOT
from data.versions import pins
from tools.site.words import WORDS

LINKS = "<!-- counted by make sync: links -->"  # in a README, up to the next comment
# of students' notebooks: a folder of the site, a branch of the repository
DOWNLOADS, BRANCH = "notebooks", "students"

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
    """Return the repository's web address, or None if it is not set.

    From the git remote `origin`, else from CITATION.cff.
    """
    return web_address(_git("remote", "get-url", "origin")) or cited()


def cited() -> str | None:
    """Return the address in the line `repository-code:` of CITATION.cff: a fork has the same."""
    said = re.search(r"^repository-code: *[\"']?([^\"'\s]+)",
                     (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    return web_address(said[1]) if said else None


def on_github(address: str | None) -> tuple[str, str] | None:
    """Return the repository's owner and name if it is on GitHub."""
    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", address or "")
    return (found[1], found[2]) if found else None


def site_address(address: str | None) -> str:
    """Return where the workflow publishes the site, with "/" at its end; "" if that is unknown.

    https://docs.github.com/pages: OWNER.github.io/NAME, without NAME where that is the former.
    """
    if not (known := on_github(address)):
        return ""
    owner, name = known
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def ways(stem: str, language: str, address: str | None) -> dict[str, str]:
    """Return the addresses at which a student's notebook is opened, by names in words.open_in.

    Colab's is on the branch that the workflow publishes, because Colab opens files on GitHub;
    Binder makes work/ itself (.binder/postBuild).
    """
    found = {"download": f"{DOWNLOADS}/{stem}.ipynb"}
    if known := on_github(address):
        below = "" if language == "en" else f"{language}/"
        at = f"{known[0]}/{known[1]}"
        found |= {"colab": f"https://colab.research.google.com/github/{at}/blob/{BRANCH}/"
                           f"{below}{stem}.ipynb",
                  "binder": f"https://mybinder.org/v2/gh/{at}/HEAD?urlpath=lab/tree/work/"
                            f"{below}{stem}.ipynb"}
    return found


def addressed(readme: str, language: str, address: str | None) -> str:
    """Return a README with the repository's address, and links to what is made from it."""
    if not address:
        return readme
    readme = re.sub(r"(?m)^git clone .* mlc-course.*$", f"git clone {address} mlc-course", readme)
    links = {}
    if site := site_address(address):
        site += "" if language == "en" else f"{language}/"
        first = next((ROOT / "paired_md").glob("00_*.md")).stem
        links = {"read": site, "colab": ways(first, language, address)["colab"],
                 "live": f"{site}live.html", "draw": f"{site}draw.html"}
    said = "".join(f" · [{WORDS[language].ways[name]}]({to})" for name, to in links.items())
    return re.sub(f"{LINKS}.*?(?=<!--)", LINKS + said, readme)


def built_from() -> str:
    """Return the commit and the main versions in one line, for the foot of every page."""
    said = [f"{name} {pins()[name]}" for name in ("apache-tvm", "torch")]
    if commit := _git("rev-parse", "--short=10", "HEAD"):
        said.append(commit)
    return " · ".join(said)
