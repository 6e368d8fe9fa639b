"""The page of feedback: a submission's notebook, as it was executed, as safe HTML.

Two barriers keep a student's text from acting in the reader's browser: the finished page is cleaned
as a whole, by a list of what it may contain (nh3), and a Content-Security-Policy in its head allows
no script, no form and nothing remote.
"""

import html
import re
from typing import Any

import nbformat
import nh3
from jinja2 import pass_context
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from pygments.formatters import HtmlFormatter

from course.words import Sentence, _, told
from tools.grading.submission import clean, under, visible

MOST_SHOWN = 100_000  # characters of a cell on the page
MOST_MARKDOWN = 20_000  # and of one that is parsed: 60,000 brackets take minutes
POLICY = ("default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
          "form-action 'none'")
STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#1f2328;background:#fff;max-width:75em;margin:0 auto;
 padding:1em}
pre{overflow-x:auto;white-space:pre;font-size:85%;line-height:1.4;margin:.3em 0;padding:.5em .7em;
 background:#f6f8fa}
table{border-collapse:collapse}th,td{text-align:left;vertical-align:top;padding:.3em .8em;
 border-top:1px solid #d0d7de}th{border-top:0}
img{max-width:100%;height:auto}td pre{white-space:pre-wrap;margin:0;background:none;padding:0}
.cell{margin:1em 0;overflow-x:auto}.prompt,.anchor-link{display:none}
.input pre{border-left:4px solid #8c959f}.output_area pre{background:none}
.output_error pre,.output_stderr pre{background:#ffebe9}
.scroll{overflow-x:auto}


@media(max-width:40em){body{padding:.5em}th,td{padding:.3em}}
@media print{pre{white-space:pre-wrap}}
""" + HtmlFormatter().get_style_defs(".highlight")
TAGS = (nh3.ALLOWED_TAGS | {"details", "summary", "section"}) - {"area", "map", "bdo"}
PROPERTIES = {"color", "background", "background-color", "font-weight", "font-style",
              "text-decoration", "text-align", "white-space", "font-family", "font-size",
              "line-height", "padding", "overflow-x", "border", "width", "vertical-align"}
_PICTURE = re.compile(r"data:image/(png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*\Z")
_FOREIGN = re.compile(r"url\s*\(|expression|@import|\\", re.IGNORECASE)


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Keep an attribute's value, or None: pictures are in the page, styles load nothing."""
    if name == "src":
        return value if _PICTURE.match(value) else None
    if name == "href":
        return value if re.match(r"(https?://|mailto:|#)", value, re.IGNORECASE) else None
    if name == "style" and _FOREIGN.search(value):
        return None
    return value


def safe(fragment: str) -> str:
    """Return an HTML fragment without anything that runs, loads, or covers the page."""
    return nh3.clean(
        fragment, tags=TAGS, clean_content_tags={"script", "style", "title", "svg", "math"},
        attributes={"*": {"class", "id", "style", "title", "lang", "dir"}, "a": {"href"},
                    "img": {"src", "alt"}, "th": {"colspan", "rowspan", "scope"},
                    "td": {"colspan", "rowspan"}, "ol": {"start"}, "details": {"open"}},
        attribute_filter=_attribute, filter_style_properties=PROPERTIES,
        url_schemes={"http", "https", "mailto", "data"}, link_rel="noopener noreferrer nofollow",
        strip_comments=True)


def document(title: str, body: str, language: str) -> str:
    """Return a whole page with a body that is already safe; `title` is text."""
    return (f"<!doctype html>\n<html lang=\"{language}\"><head><meta charset=\"utf-8\">"
            f"<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
            "<meta name=\"referrer\" content=\"no-referrer\">"
            f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
            f"<body>{body}</body></html>\n")


class _Exporter(HTMLExporter):
    """nbconvert's HTML without a page around it, and with long Markdown as plain text."""

    def default_filters(self) -> Any:
        yield from super().default_filters()
        yield "strip_files_prefix", clean  # its own takes minutes for 60,000 brackets

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        if len(source) > MOST_MARKDOWN:
            return f"<pre>{html.escape(source)}</pre>"
        return safe(super().markdown2html(context, source))  # separately: what it opens, it closes


def _text(data: Any) -> str:
    """Return a text without invisible characters, except the colours of a terminal."""
    parts = re.split(r"(\x1b\[[\d;]*m)", clean(data))
    return "".join(part if at % 2 else visible(part) for at, part in enumerate(parts))


def _output(output: Any) -> nbformat.NotebookNode | None:
    """Return an output with known kinds and text, and a picture's alt text as its only metadata."""
    match under(output, "output_type"):
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            return new_output("stream", name=name, text=_text(output.get("text")))
        case "error":
            lines = output.get("traceback")
            lines = [_text(line) for line in lines] if isinstance(lines, list) else []
            return new_output("error", ename=_text(output.get("ename")),
                              evalue=_text(output.get("evalue")), traceback=lines)
        case "display_data" | "execute_result":
            kept = {"text/plain": _text(under(output, "data", "text/plain"))}
            if (markup := under(output, "data", "text/html")) is not None:
                kept["text/html"] = safe(visible(clean(markup)))
            kept |= {kind: picture for kind in ("image/png", "image/jpeg") if re.fullmatch(
                r"[\w+/=\s]+", picture := clean(under(output, "data", kind)), re.ASCII)}
            alt = _text(under(output, "metadata", "image/png", "alt"))
            return new_output("display_data", data=kept, metadata={
                "image/png": {"alt": html.escape(alt[:2000], quote=True)}} if alt else {})
    return None


def render(cells: list[dict[str, Any]], outputs: dict[str, list[dict[str, Any]]],
           said: dict[str, tuple[bool, str]]) -> str:
    """Return the body of a graded notebook: its cells, their outputs, each check's verdict."""
    shown = []
    for place, cell in enumerate(cells):
        source = visible(clean(cell["source"]))
        source = source[:MOST_SHOWN] + "\n... cut here" * (len(source) > MOST_SHOWN)
        made = (new_code_cell if cell["code"] else new_markdown_cell)(source)
        if cell["code"]:
            made.outputs = list(filter(None, map(_output, outputs.get(str(place), []))))
            if cell["name"] in said:
                passed, text = said[cell["name"]]
                made.outputs = [new_output("stream", name="stdout" if passed else "stderr",
                                           text=visible(clean(text)))]
        shown.append(made)
    exporter = _Exporter(template_name="basic", exclude_input_prompt=True,
                         exclude_output_prompt=True, exclude_anchor_links=True)
    return exporter.from_notebook_node(new_notebook(cells=shown))[0]


def index(name: str, rows: list[tuple[str, str, str, str]], pages: list[str], notes: list[Sentence],
          language: str) -> str:
    """Return a student's first page: points, what each check said, links to the notebooks.

    `rows`: exercise, points, what the check said, and the answer that it judged.
    """
    def say(text: str) -> str:
        return html.escape(visible(told(text, language)))

    of_answer, graded = _("the answer"), _("{notebook}, as it was graded")
    cells = "\n".join(
        f"<tr><th scope=\"row\">{say(exercise)}</th><td>{say(points)}</td>"
        f"<td><pre>{say(words)}</pre>"
        + (f"<details><summary>{say(of_answer)}</summary><pre>{say(answer[:MOST_SHOWN])}"
           "</pre></details>" if answer else "") + "</td></tr>"
        for exercise, points, words, answer in rows)
    links = "".join(f'<li><a href="{stem}.html">{say(graded.format(notebook=stem))}</a></li>'
                    for stem in pages)
    lines = "".join(f"<li>{say(note)}</li>" for note in notes)
    heads = "".join(f"<th scope=\"col\">{say(head)}</th>"
                    for head in (_("exercise"), _("points"), _("what the check said")))
    return document(name, f"<h1>{say(name)}</h1><ul>{lines}{links}</ul>"
                          f"<div class=\"scroll\"><table><thead><tr>{heads}</tr></thead>"
                          f"<tbody>\n{cells}\n</tbody></table></div>", language)
