"""The site's source: notebooks and documents, as Sphinx and MyST take them."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import nbformat

from tools import translation
from tools.pages import PICTURES, Described
from tools.site import terms
from tools.site.project import ROOT, repository
from tools.site.words import WORDS, Words
from tools.student import SOLUTION, STUB
from tools.translation import masters

LONG = 35  # lines: a listing of more is folded
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s]+)(\))")
# documents, and the page that each becomes
DOCUMENTS = {"docs/tvm_errors.md": "tvm_errors", "docs/rosetta.md": "rosetta",
             "docs/old_course.md": "old_course", "docs/benchmark.md": "benchmark",
             "data/README.md": "data", "instructor/README.md": "instructor",
             "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}
LOOK_UP = ("live", "terms", "tvm_errors", "rosetta", "old_course", "benchmark")


def read(master: Path, language: str) -> tuple[nbformat.NotebookNode, dict[str, list[str]]]:
    """Return a notebook in a language, and what in each Markdown cell, by id, is English."""
    if language == "en":
        return nbformat.read(master, as_version=4), {}
    paragraphs, _, notebook = translation.current(master.name[:2])
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    return notebook, {cell.id: [one.shown for one in paragraphs if one.cell == number
                                and one.shown and not one.translated]
                      for number, cell in enumerate(cells)}


def file_in(language: str, name: str) -> tuple[Path, bool]:
    """Return the file of a document in a language, and whether it is in that language.

    The Chinese of x.md is x.zh.md beside it or zh/x.md below it.
    """
    path = ROOT / name
    own = [path] if language == "en" else [path.with_suffix(f".{language}.md"),
                                           path.parent / language / path.name]
    found = next((file for file in own if file.exists()), None)
    return found or path, found is not None


def page_of(name: str) -> str | None:
    """Return the page, without suffix, that a file of the repository becomes."""
    english = name.replace("/zh/", "/").replace(".zh.md", ".md")
    if english.startswith(("notebooks/", "paired_md/")):
        return Path(name).stem if Path(name).stem in {path.stem for path in masters()} else None
    return (DOCUMENTS | {"README.md": "index", "docs/glossary.md": "terms"}).get(english)


def edition_of(name: str, file: Path, language: str) -> str:
    """Return the language of the page to which a link from `file` to a file `name` leads.

    The reader's own, except where the Chinese leads to the English of a document, or back.
    """
    to_chinese, from_chinese = ("/zh/" in path or ".zh." in path
                                for path in (name, file.as_posix()))
    has_both = name.endswith(".md") and "paired_md" not in name and file_in("zh", name)[1]
    return "zh" if to_chinese else "en" if from_chinese and has_both else language


def linked(text: str, file: Path, language: str) -> str:
    """Return Markdown with its links leading to the site's pages.

    A link to a file without a page leads into the repository where its address is known, else its
    text stays without a link. `file`: where the text stands.
    """
    address = repository()

    def lead(match: re.Match) -> str:
        target, mark, anchor = match[2].partition("#")
        path = (file.parent / target).resolve()
        if not path.exists():  # code, or a mistake: Sphinx finds it
            return match[0]
        name = path.relative_to(ROOT).as_posix()
        if page := page_of(name):
            other = edition_of(name, file, language)
            if other == language:
                suffix = ".ipynb" if page[:2].isdigit() else ".md"
                return f"{match[1]}{page}{suffix}{mark}{anchor}{match[3]}"
            # Sphinx knows the pages of one language only
            return f"\1{'zh/' if other == 'zh' else '../'}{page}.html{mark}{anchor}\2"
        if path.suffix == ".png":
            return f"{match[1]}{path.name}{match[3]}"  # it is laid beside the pages
        return f"{match[1]}{address}/blob/HEAD/{name}{match[3]}" if address else "\0"

    text = LINK.sub(lead, text)
    text = re.sub("\\[([^\\]]+)\0", r"\1", text)
    return re.sub("\\[([^\\]]+)\1([^\2]+)\2", r'<a href="\2">\1</a>', text)


def picture(folder: Path, up: str) -> Callable[[bytes, str], str]:
    """Return a function that writes a picture into `folder` and returns its address from a page.

    For a PNG it writes the SVG that `make outputs` kept in docs/pictures/, where there is one:
    pictures of times have none until they are measured anew.
    """
    def source(content: bytes, name: str) -> str:
        svg = PICTURES / Path(name).with_suffix(".svg")
        if svg.exists():
            content, name = svg.read_bytes(), svg.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        return f"{up}pictures/{name}"

    return source


def _tagged(cell: nbformat.NotebookNode, tag: str, label: str) -> None:
    cell.metadata.setdefault("tags", []).append(tag)
    cell.metadata["mystnb"] = {"code_prompt_show": label, "code_prompt_hide": label}


def _only_imports(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell imports, and at most sets the path and the environment for it."""
    return all(isinstance(line, ast.Import | ast.ImportFrom)
               or ast.unparse(line).startswith(("root = ", "sys.path.", "os.environ."))
               for line in ast.parse(cell.source).body)


def folded(cell: nbformat.NotebookNode, words: Words) -> list[nbformat.NotebookNode]:
    """Return the cells that a code cell becomes: solutions and what is long open with a click.

    An answer cell becomes two: what students get, and the whole with the solution, folded.
    """
    cell.metadata.pop("nbgrader", None)
    if SOLUTION.search(cell.source):
        stub = nbformat.v4.new_code_cell(SOLUTION.sub(STUB, cell.source), id=f"{cell.id}-stub")
        _tagged(cell, "hide-input", words.solution)
        cell.source = re.sub(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", "", cell.source,
                             flags=re.MULTILINE).rstrip()
        return [stub, cell]
    if cell.source == "plots.live()":  # here it is a page
        cell.outputs[0].data["text/html"] = f'<p><a href="live.html">{words.live}</a></p>'
    lines = [len(output.get("data", {}).get("text/plain", "").splitlines())
             for output in cell.outputs]
    if _only_imports(cell):
        _tagged(cell, "hide-input", words.setup)
    elif max(lines, default=0) > LONG:
        _tagged(cell, "hide-output", words.prints.format(max(lines)))
    return [cell]


def notebook_page(master: Path, language: str, build: Path) -> str:
    """Return the source of a notebook's page, an .ipynb; its pictures go to build/pictures/."""
    words = WORDS[language]
    notebook, waiting = read(master, language)
    untranslated = bool(waiting) and all(waiting.values())
    file = master if language == "en" else translation.file_of(master)
    up = "" if language == "en" else "../"
    Described(source=picture(build / "pictures", up), lang=language).preprocess(notebook, {})
    names = terms.defined(master.name[:2], read(master, "en")[0], notebook)
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for text in () if untranslated else waiting.get(cell.id, ()):
                cell.source = cell.source.replace(text, _labelled(text, words.english_part), 1)
            cell.source = terms.indexed(linked(cell.source, file, language), names)
            cells.append(cell)
        else:
            cells += folded(cell, words)
    notebook.cells = cells
    if untranslated:
        cells[0].source = _labelled(cells[0].source, words.english)
    return nbformat.writes(notebook)


def _labelled(text: str, label: str) -> str:
    """Put a label before a text, below its heading if it begins with one."""
    note = f'<p class="untranslated">{label}</p>'
    head, _, rest = text.partition("\n")
    return f"{head}\n\n{note}\n\n{rest.lstrip()}" if head.startswith("#") else f"{note}\n\n{text}"


def document_page(name: str, language: str) -> str:
    """Return the source of a document's page."""
    path, in_it = file_in(language, name)
    text = linked(translation.plain(path.read_text(encoding="utf-8")), path, language)
    return text if in_it else _labelled(text, WORDS[language].english)


def notebook_title(source: str) -> str:
    """Return the first heading of a notebook's source, the text of an .ipynb."""
    return nbformat.reads(source, as_version=4).cells[0].source.splitlines()[0].lstrip("# ")


def sources(language: str, build: Path, live: str) -> dict[str, str]:
    """Return the files that Sphinx builds the site in a language of, by their names.

    `live`: the HTML of the interactive page (plots.moving); pictures go to build/pictures/.
    """
    words = WORDS[language]
    pages = {master.name: notebook_page(master, language, build) for master in masters()}
    pages |= {f"{page}.md": document_page(name, language) for name, page in DOCUMENTS.items()}
    pages["live.inc"] = live
    pages["live.md"] = f"# {words.live}\n\n```{{raw}} html\n:file: live.inc\n```\n"
    headings = {master.name[:2]: (master.name, read(master, "en")[0], read(master, language)[0])
                for master in masters()}
    pages["terms.md"] = terms.page(words, language, headings)
    notebooks = [f"{name[:2]} {notebook_title(text)} <{name}>" for name, text in pages.items()
                 if ".ipynb" in name]
    documents = [Path(name).stem for name in pages if name.endswith(".md")]
    pages["index.md"] = document_page("README.md", language)
    for caption, names in ((words.parts, notebooks),
                           (words.look_up, LOOK_UP),
                           (words.teach, [name for name in documents if name not in LOOK_UP])):
        entries = "\n".join(names)
        pages["index.md"] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
    return pages
