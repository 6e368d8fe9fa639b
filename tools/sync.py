"""Keep notebooks/ and paired_md/ the same, and the Chinese up to date (tools.translation).

    python -m tools.sync           write paired_md/ from notebooks/
    python -m tools.sync md        write the cells of notebooks/ from paired_md/; outputs of
                                   cells that did not change, and cell ids, stay
    python -m tools.sync check     change nothing; exit 1 and say what differs
    python -m tools.sync accept 02 README.md    the first; the Chinese of paragraphs whose English
                                   changed in these is still right; also after md

Nothing is written if a file that would be overwritten differs from its twin and is newer: then it
was edited.
"""

import sys
from collections.abc import Collection
from pathlib import Path

import jupytext
import nbformat
from jupytext.combine import combine_inputs_with_outputs

from course.words import ROOT
from tools import messages, readmes, translation
from tools.translation import as_markdown


def _pair(stem: str) -> tuple[Path, Path]:
    return ROOT / "notebooks" / f"{stem}.ipynb", ROOT / "paired_md" / f"{stem}.md"


def differing() -> list[str]:
    """Return the names of the pairs whose halves differ, or one of which is missing."""
    stems = {path.stem for folder in ("notebooks", "paired_md")
             for path in (ROOT / folder).glob("[0-9]*")}
    wrong = []
    for stem in sorted(stems):
        ipynb, md = _pair(stem)
        if not (ipynb.exists() and md.exists()) or \
                as_markdown(nbformat.read(ipynb, as_version=4)) != md.read_text(encoding="utf-8"):
            wrong.append(stem)
    return wrong


def refuse_to_overwrite_edits(to_markdown: bool) -> None:
    """Exit if a file that would be overwritten is the newer one of a pair that differs."""
    for stem in differing():
        ipynb, md = _pair(stem)
        source, target = (ipynb, md) if to_markdown else (md, ipynb)
        if source.exists() and target.exists() \
                and target.stat().st_mtime_ns > source.stat().st_mtime_ns:
            old, new = source.relative_to(ROOT), target.relative_to(ROOT)
            other = "make sync FROM=md" if to_markdown else "make sync"
            sys.exit(f"Nothing is written: {new} is newer than {old} and differs from it. To "
                     f"keep what is in {new}: `{other}`. To overwrite it: `touch {old}`, then "
                     "the command again.")


def write_markdown() -> None:
    """Write paired_md/ from notebooks/."""
    for ipynb in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        text = as_markdown(nbformat.read(ipynb, as_version=4))
        (ROOT / "paired_md" / f"{ipynb.stem}.md").write_text(text, encoding="utf-8")


def write_notebooks() -> None:
    """Write the cells of notebooks/ from paired_md/, then the Markdown in its normal form."""
    for md in sorted((ROOT / "paired_md").glob("[0-9]*.md")):
        notebook = jupytext.read(md)
        ipynb = ROOT / "notebooks" / f"{md.stem}.ipynb"
        if ipynb.exists():
            stored = nbformat.read(ipynb, as_version=4)
            notebook = combine_inputs_with_outputs(notebook, stored, "md:markdown")
        nbformat.write(nbformat.v4.upgrade(notebook), ipynb)
    write_markdown()


def sync_chinese(change: bool = True, accept: Collection[str] = ()) -> list[str]:
    """Bring catalogues, the Chinese made of them and READMEs up to date; return which were not."""
    behind, fill = translation.merge(change, accept) + messages.write(change), readmes.filler()
    behind += translation.render(change, fill) + readmes.write(change, fill)
    return [path.relative_to(ROOT).as_posix() for path in behind]


def main(*words: str) -> None:
    """Do what the module's text says; exit with a line if something differs."""
    at = words.index("accept") if "accept" in words else len(words)
    task, accept = words[:at], words[at + 1:]
    translation.files(accept)  # a wrong name ends it before anything is written
    names, check = differing(), task == ("check",)
    if check:
        if names:
            sys.exit(f"Not in sync: {', '.join(names)}. Run `make sync` "
                     "(or `make sync FROM=md` if you edited the Markdown).")
    elif task in ((), ("md",)):
        refuse_to_overwrite_edits(to_markdown=not task)
        write_notebooks() if task else write_markdown()
    else:
        sys.exit(f"Nothing is written: there is no {' '.join(task)!r}. `make sync` writes "
                 "paired_md/ from notebooks/, `make sync FROM=md` the other way.")
    behind = sync_chinese(not check, accept)
    if not check:
        own = "notebooks/{}.ipynb" if task else "paired_md/{}.md"
        written = dict.fromkeys([*map(own.format, names), *behind])
        print(f"Written: {', '.join(written)}." if written else "Nothing to write: all agree.")
    wrong = [f"{name} is not up to date: run `make sync`." for name in behind if check]
    if wrong := wrong + messages.wrong():
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
