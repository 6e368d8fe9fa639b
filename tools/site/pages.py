"""The site's source: notebooks and documents in the form that Sphinx and MyST read."""

import ast
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat

from tools import translation
from tools.grading.submission import name_of
from tools.lang import masters
from tools.pages import PICTURES, Described
from tools.site import anchors, landing, terms
from tools.site.dark import for_the_dark, transparent
from tools.site.narrow import LEAST, narrow, smallest
from tools.site.project import ROOT, addressed, repository, ways
from tools.site.words import WORDS, Words
from tools.student import SOLUTION, STUB

DARK, NARROW = ".dark.svg", ".narrow"  # ends of names
OPENING = ("before", "target")  # the titles in the first page's picture
SMALLEST = 7.5  # points: the letters of a figure that is kept as a PNG alone
LONG = 35  # lines: longer listings are folded
COLUMNS = re.compile(r"^(?=.*\S {2,}\S).*\n(?=.*\S {2,}\S)", re.MULTILINE)  # two lines with gaps
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s]+)(\))")
# documents, and the page that each becomes
DOCUMENTS = {"README.md": "readme",
             "docs/troubleshooting.md": "troubleshooting",
             "docs/tvm_errors.md": "tvm_errors", "docs/rosetta.md": "rosetta",
             "docs/old_course.md": "old_course", "docs/benchmark.md": "benchmark",
             "data/README.md": "data", "instructor/README.md": "instructor",
             "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}
LOOK_UP = ("readme", "live", "draw", "terms", "troubleshooting", "tvm_errors", "rosetta",
           "old_course", "benchmark")


def read(master: Path, language: str) -> tuple[nbformat.NotebookNode, dict[str, list[str]]]:
    """Return a notebook in a language, and what in each Markdown cell, by id, is English."""
    if language == "en":
        return nbformat.read(master, as_version=4), {}
    messages, _, notebook = translation.current(master.name[:2])
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    return notebook, {cell.id: [one.msgstr for one in group if one.fuzzy]
                      for cell, group in zip(cells, messages, strict=True)}


def file_in(language: str, name: str) -> tuple[Path, bool]:
    """Return the file of a document in a language, and whether it is in that language.

    The Chinese of x.md is x.zh.md next to it or zh/x.md below it.
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
    return (DOCUMENTS | {"docs/glossary.md": "terms"}).get(english)


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

    A link to a file without a page leads into the repository if its address is known; else only its
    text stays. `file`: where the text is from.
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
            return f"{match[1]}{path.name}{match[3]}"  # it is next to the pages
        return f"{match[1]}{address}/blob/HEAD/{name}{match[3]}" if address else "\0"

    text = LINK.sub(lead, text)
    text = re.sub("\\[([^\\]]+)\0", r"\1", text)
    return re.sub("\\[([^\\]]+)\1([^\2]+)\2", r'<a href="\2">\1</a>', text)


def picture(folder: Path, up: str) -> Callable[[bytes, str], str]:
    """Return a function that writes a picture into `folder` and returns its address from a page.

    For a PNG it writes the SVG that `make outputs` kept in docs/pictures/, if there is one:
    pictures of times have none until they are measured again. An SVG gets a dark form.
    """
    def source(content: bytes, name: str) -> str:
        svg = PICTURES / Path(name).with_suffix(".svg")
        if svg.exists():
            content, name = svg.read_bytes(), svg.name
        folder.mkdir(parents=True, exist_ok=True)
        if name.endswith(".svg"):
            drawing = content.decode()
            for kind, drawn in ("", drawing), (NARROW, narrow(drawing)):
                stem = f"{Path(name).stem}{kind}"
                if drawn:
                    (folder / f"{stem}{DARK}").write_text(for_the_dark(drawn), encoding="utf-8")
                    (folder / f"{stem}.svg").write_text(transparent(drawn), encoding="utf-8")
            return f"{up}pictures/{name}"
        (folder / name).write_bytes(content)
        return f"{up}pictures/{name}"

    return source


def _size(svg: str) -> tuple[str, int]:
    """Return a drawing's size attributes, and the width at which its letters can be read."""
    width, height = (float(number) for number in
                     re.findall(r'\b(?:width|height)="([\d.]+)pt"', svg)[:2])
    return (f'width="{width * 4 / 3:.0f}" height="{height * 4 / 3:.0f}"',
            math.ceil(width * LEAST / smallest(svg)))


def least_of_png(png: bytes) -> str:
    """Return the style of a figure that is a PNG: the least width at which it can be read.

    Its letters are at least SMALLEST points high, at 100 dots an inch (Matplotlib's savefig here).
    """
    width = int.from_bytes(png[16:20], "big")  # PNG's first chunk, IHDR
    return f"--least: {math.ceil(width * LEAST / (SMALLEST * 100 / 72))}px"


def opened(image: str, address: str, least: str) -> str:
    """Return a picture's HTML, in which a click opens it alone; `least`: the style of its width."""
    return f'<span class="drawing" style="{least}"><a href="{address}">{image}</a></span>'


def by_theme(shown: str, site: Path) -> str:
    """Return HTML in which each drawing opens large, and has a light and a dark form.

    If there is a narrow form, a phone shows that. No letter gets smaller than LEAST: drawings that
    are then too wide are scrolled.
    """
    def drawing(image: re.Match) -> str:
        if image[3] == "png":
            file = site / "pictures" / Path(image[2]).name
            return opened(image[0], image[2], least_of_png(file.read_bytes()))
        address, stem = image[2].removesuffix(".svg"), Path(image[2]).stem
        files = {kind: site / "pictures" / f"{stem}{kind}.svg" for kind in ("", NARROW)}
        sizes = {kind: _size(file.read_text(encoding="utf-8"))
                 for kind, file in files.items() if file.exists()}
        if "" not in sizes:
            return image[0]
        least = [f"--least{kind.replace('.', '-')}: {width}px"
                 for kind, (_attributes, width) in sizes.items()]
        pictures = []
        for theme, end in ("light", ".svg"), ("dark", DARK):
            source = f'<source media="(max-width: 600px)" srcset="{address}{NARROW}{end}" ' \
                     f"{sizes[NARROW][0]}>" if NARROW in sizes else ""
            # a browser fetches only the one that it shows, and keeps room for it
            pictures.append(f'<picture>{source}{image[1]}{address}{end}" class="only-{theme}" '
                            f'{sizes[""][0]} loading="lazy"></picture>')
        return opened("".join(pictures), image[2], "; ".join(least))

    return re.sub(r'(<img [^>]*src=")([^"]+\.(svg|png))">', drawing, shown)


def _tagged(cell: nbformat.NotebookNode, tag: str, label: str) -> None:
    cell.metadata.setdefault("tags", []).append(tag)
    cell.metadata["mystnb"] = {"code_prompt_show": label, "code_prompt_hide": label}


def _only_imports(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell imports, and at most sets the path and the environment for it."""
    return all(isinstance(line, ast.Import | ast.ImportFrom)
               or ast.unparse(line).startswith(("root = ", "sys.path.", "os.environ."))
               for line in ast.parse(cell.source).body)


def folded(cell: nbformat.NotebookNode, words: Words) -> list[nbformat.NotebookNode]:
    """Return the cells that a code cell becomes: solutions and long listings open with a click.

    An answer cell becomes two: what students get, and all of it with the solution, folded.
    """
    cell.metadata.pop("nbgrader", None)
    if SOLUTION.search(cell.source):
        stub = nbformat.v4.new_code_cell(SOLUTION.sub(STUB, cell.source), id=f"{cell.id}-stub")
        _tagged(cell, "hide-input", words.solution)
        cell.source = re.sub(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", "", cell.source,
                             flags=re.MULTILINE).rstrip()
        return [stub, cell]
    for call, page in (("plots.live()", "live"), ("browser.show(", "draw")):
        if cell.source.splitlines()[-1].startswith(call):  # here it is a page
            link = f'<p><a href="{page}.html">{getattr(words, page)}</a></p>'
            cell.outputs[0].data["text/html"] = link
    lines = [len(output.get("data", {}).get("text/plain", "").splitlines())
             for output in cell.outputs]
    if any(COLUMNS.search(output.get("text", "")) for output in cell.get("outputs", [])):
        cell.metadata.setdefault("tags", []).append("columns")  # they are scrolled, not wrapped
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
    file = master if language == "en" else translation.files()[master.name[:2]].chinese
    up = "" if language == "en" else "../"
    Described(source=picture(build / "pictures", up), lang=language).preprocess(notebook, {})
    names = terms.defined(master.name[:2], read(master, "en")[0], notebook)
    cells: list[nbformat.NotebookNode] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if shown := output.get("data", {}).get("text/html"):
                output.data["text/html"] = by_theme(shown, build)
        if cell.cell_type == "markdown":
            for text in () if untranslated else waiting.get(cell.id, ()):
                cell.source = cell.source.replace(text, _labelled(text, words.english_part), 1)
            cell.source = terms.indexed(linked(cell.source, file, language), names)
            cells.append(cell)
        elif cells and all(one.cell_type == "code" and not one.get("outputs")
                           and _only_imports(one) for one in (cell, cells[-1])):
            cells[-1].source += f"\n\n{cell.source}"  # one fold, not two of one name
        else:
            cells += folded(cell, words)
    notebook.cells = cells
    known = ways(master.stem, language, repository())
    links = " · ".join(f'<a href="{known[name]}"{" download" if name == "download" else ""}>'
                       f'{said}</a>' for name, said in words.open_in.items() if name in known)
    head, _, rest = cells[0].source.partition("\n")
    cells[0].source = f'{head}\n\n<p class="open-in">{links}</p>\n\n{rest.lstrip()}'
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
    text = addressed(path.read_text(encoding="utf-8"), language, repository())
    text = linked(text, path, language)
    return text if in_it else _labelled(text, WORDS[language].english)


def sources(language: str, build: Path, moving: dict[str, str]) -> dict[str, str]:
    """Return the files that Sphinx builds the site in a language of, by their names.

    `moving`: the HTML of the interactive pages, by their names; pictures go to build/pictures/.
    """
    words = WORDS[language]
    pages = {master.name: notebook_page(master, language, build) for master in masters()}
    pages |= {f"{page}.md": document_page(name, language) for name, page in DOCUMENTS.items()}
    for name, page in moving.items():
        pages[f"{name}.inc"] = page
        pages[f"{name}.md"] = (f"# {getattr(words, name)}\n\n"
                               f"```{{raw}} html\n:file: {name}.inc\n```\n")
    headings = {master.name[:2]: (master.name, read(master, "en")[0], read(master, language)[0])
                for master in masters()}
    pages["terms.md"] = terms.page(words, language, headings)
    notebooks = [f"{number} {terms.headings(own)[0]} <{name}>"
                 for number, (name, _english, own) in headings.items()]
    documents = [Path(name).stem for name in pages if name.endswith(".md")]
    pages["index.md"] = arrival(language, opening(
        [text for name, text in pages.items() if name.endswith(".ipynb")]))
    in_it = {page: file_in(language, name)[1] for name, page in DOCUMENTS.items()}

    def entry(page: str) -> str:
        title = words.readme if page == "readme" else \
            words.titles.get(page) if not in_it.get(page, True) else None
        return f"{title} <{page}>" if title else page

    for caption, names in ((words.parts, notebooks),
                           (words.look_up, map(entry, LOOK_UP)),
                           (words.teach, [entry(name) for name in documents
                                          if name not in LOOK_UP])):
        entries = "\n".join(names)
        pages["index.md"] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
    return pages


def section_anchors() -> dict[str, list[str]]:
    """Return the anchors of each page's sections, in both languages, by the page's name."""
    texts = {master.stem: terms.headings(read(master, "en")[0]) for master in masters()}
    texts |= {page: terms.headings_in((ROOT / name).read_text(encoding="utf-8"))
              for name, page in DOCUMENTS.items()}
    texts |= {page: [page] for page in ("index", "live", "draw", "terms")}
    return {page: anchors.anchors(headings) for page, headings in texts.items()}


def opening(pages: Iterable[str]) -> str:
    """Return the picture of the first page as HTML: in 04, the loops before and as one makes them.

    `pages`: the sources of the notebooks' pages.
    """
    for output in (output for page in pages for cell in nbformat.reads(page, as_version=4).cells
                   for output in cell.get("outputs", [])):
        shown = output.get("data", {}).get("text/html", "")
        if source := re.search(r'pictures/(\w+)(?:-zh)?\.svg"', shown):
            drawing = (PICTURES / f"{source[1]}.svg").read_text(encoding="utf-8")
            if all(f"<!-- {name} -->" in drawing for name in OPENING):
                return "".join(re.findall('<span class="drawing".*?</span>', shown))
    raise LookupError(f"no picture has the titles {OPENING}")


def readme(language: str) -> str:
    """Return the README in a language."""
    return file_in(language, "README.md")[0].read_text(encoding="utf-8")


def arrival(language: str, picture: str) -> str:
    """Return the source of the landing page; `picture`: as HTML."""
    exercises = {master.name[:2]: [name_of(cell)
                                   for cell in nbformat.read(master, as_version=4).cells
                                   if cell.metadata.get("nbgrader", {}).get("grade")]
                 for master in masters()}
    address = repository()
    first = masters()[0].stem
    known = {"read": f"{first}.html", "here": f"readme.html#{section_anchors()['readme'][1]}",
             "live": "live.html", "draw": "draw.html",
             "loops": "loops.html" if language == "en" else "../loops.html?zh",
             **({"clone": address} if address else {}),
             "other": "zh/index.html" if language == "en" else "../index.html",
             **{name: way for name, way in ways(first, language, address).items()
                if name == "colab"}}
    return landing.page(readme(language), exercises, WORDS[language], known, picture)
