"""Build the site into build/site/: English at the root, Chinese below zh/.

No notebook is executed: their stored outputs are shown. TVM computes the interactive page, which
is also written as one file, loops.html.

    python -m tools.site

It fails for any warning of Sphinx, and for any broken link inside the site.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from course.plots import moving
from tools import colab
from tools.site import aliases, garment, landing, links
from tools.site.pages import (
    DOCUMENTS,
    file_in,
    least_of_png,
    masters,
    opened,
    readme,
    section_anchors,
    sources,
)
from tools.site.project import DOWNLOADS, ROOT, built_from, repository, site_address
from tools.site.words import WORDS

BUILD = ROOT / "build"
SITE = BUILD / "site"


def lay(folder: Path, files: dict[str, str]) -> None:
    """Make a folder hold just these files; unchanged ones keep their dates: Sphinx skips them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".md", ".ipynb") and path.name not in files:
            path.unlink()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in (ROOT / "docs").glob("*.png"):
        shutil.copy2(path, folder)


def settings(language: str) -> dict:
    """Return what docs/site/conf.py reads."""
    words = WORDS[language]
    folder = "paired_md" if language == "en" else f"paired_md/{language}"
    files = {path.stem: [(".ipynb", f"notebooks/{path.name}"),
                         ("Markdown", f"{folder}/{path.stem}.md")] for path in masters()}
    files |= {page: [("Markdown", file_in(language, name)[0].relative_to(ROOT).as_posix())]
              for name, page in DOCUMENTS.items()}
    return {"title": words.title, "language": language, "built_from": built_from(),
            "search": words.search, "found": words.found, "report": words.report,
            "repository": repository(), "address": site_address(repository()),
            "about": landing.about(readme(language)),
            "anchors": (anchors := section_anchors()), "aliases": aliases.by_section(anchors),
            "files": files}


def start(language: str, tree: dict, drawn: dict) -> subprocess.Popen:
    """Start Sphinx for a language: strict, warnings are errors.

    `tree`: plots.moving.data(); `drawn`: garment.data()'s first.
    """
    source = BUILD / "site-source" / language
    lay(source, sources(language, SITE, {"live": moving.fragment(tree, language),
                                         "draw": garment.fragment(drawn, language)}))
    target = SITE if language == "en" else SITE / language
    said = source.with_suffix(".json")  # too long for an environment variable
    said.write_text(json.dumps(settings(language)), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q", "-b", "html",
         "-c", str(ROOT / "docs" / "site"), "-d", str(BUILD / "site-source" / f"{language}.cache"),
         str(source), str(target)],
        env={**os.environ, "SITE": str(said)})


def mend(site: Path) -> None:
    """Give screen readers what the theme and MyST-NB leave out.

    Buttons get the names that they show, in the page's language; the banner
    is the side bar with the title and the search, not the theme's empty one.
    """
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        text = text.replace('<summary aria-label="Toggle hidden content">', "<summary>")
        text = text.replace('<header id="pst-header" ', '<header id="pst-header" role="none" ')
        text = text.replace('<div id="pst-primary-sidebar" ',
                            '<div id="pst-primary-sidebar" role="banner" ')
        text = re.sub(r'(class="btn search-button-field[^>]*?) aria-label="[^"]*"', r"\1", text)
        first = path.relative_to(site).parts[0]
        words = WORDS[first if first in WORDS else "en"]
        text = text.replace("<html ", f'<html data-copy="{"|".join(words.copy)}" '
                            f'data-solved="{words.solved}" ', 1)
        text = re.sub(r'<th class="head[^"]*"><p></p></th>', "<td></td>", text)
        for english, said in words.theme.items():
            text = re.sub(rf'( (?:title|aria-label)="){english}"', rf'\1{said}"', text)
            text = text.replace(f"</i>{english}<", f"</i>{said}<")
        of_documents = re.compile(r'(<img [^>]*src="([^"]*_images/[^"]+\.png)"[^>]*>)')
        for image, address in of_documents.findall(text):
            least = least_of_png((path.parent / address).read_bytes())
            text = text.replace(image, opened(image, address, least))
        path.write_text(text, encoding="utf-8")


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    tree, (drawn, weights) = moving.data(), garment.data()
    running = [start(language, tree, drawn) for language in WORDS]
    if sum(abs(process.wait()) for process in running):
        sys.exit("The site was not built: see the lines above.")
    mend(SITE)
    garment.lay(weights, SITE)
    for language in WORDS:
        folder = SITE if language == "en" else SITE / language
        colab.write(colab.notebooks(language), folder / DOWNLOADS)
    (SITE / "loops.html").write_text(moving.page(tree), encoding="utf-8")
    if wrong := links.broken(SITE):
        sys.exit("\n".join(["Links that lead nowhere:", *wrong]))
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file())
    print(f"Open {(SITE / 'index.html').relative_to(ROOT)} in a browser "
          f"({size / 1e6:.0f} MB).")


if __name__ == "__main__":
    main()
