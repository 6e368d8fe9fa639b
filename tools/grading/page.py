"""The page of feedback: a submission's notebook, executed in the limited kernel, as safe HTML.

Two walls keep what a student wrote from doing anything in the reader's browser: the finished page
is cleaned as a whole, by a list of what may be in it (nh3), and a Content-Security-Policy in its
head allows no script, no form and nothing remote.
"""

import base64
import html
import re
import time
from pathlib import Path
from typing import Any

import nbformat
import nh3
from jinja2 import pass_context
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from pygments.formatters import HtmlFormatter

from tools.grading import confine, kernel
from tools.grading.submission import clean, under

MOST_OUTPUT = 1_000_000  # characters of a cell's output
MOST_SHOWN = 100_000  # characters of a cell on the page
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
"""
TAGS = (nh3.ALLOWED_TAGS | {"details", "summary", "section"}) - {"area", "map", "bdo"}
PROPERTIES = {"color", "background", "background-color", "font-weight", "font-style",
              "text-decoration", "text-align", "white-space", "font-family", "font-size",
              "line-height", "padding", "overflow-x", "border", "width", "vertical-align"}
_PICTURE = re.compile(r"data:image/(png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*\Z")
_FOREIGN = re.compile(r"url\s*\(|expression|@import|\\", re.IGNORECASE)


# ---- cleaning ---------------------------------------------------------------------------------


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Keep an attribute's value, or None: pictures come with the page, styles load nothing."""
    if name == "src":
        return value if _PICTURE.match(value) else None
    if name == "href":
        return value if re.match(r"(https?://|mailto:|#)", value, re.IGNORECASE) else None
    if name == "style" and _FOREIGN.search(value):
        return None
    return value


def safe(fragment: str) -> str:
    """Return an HTML fragment with nothing in it that runs, loads, or covers the page."""
    return nh3.clean(
        fragment, tags=TAGS, clean_content_tags={"script", "style", "title", "svg", "math"},
        attributes={"*": {"class", "id", "style", "title", "lang", "dir"}, "a": {"href"},
                    "img": {"src", "alt"}, "th": {"colspan", "rowspan", "scope"},
                    "td": {"colspan", "rowspan"}, "ol": {"start"}, "details": {"open"}},
        attribute_filter=_attribute, filter_style_properties=PROPERTIES,
        url_schemes={"http", "https", "mailto", "data"}, link_rel="noopener noreferrer nofollow",
        strip_comments=True)


def document(title: str, body: str, style: str = "") -> str:
    """Return a whole page of a body that is safe already; `title` is text."""
    return ("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            f"<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
            "<meta name=\"referrer\" content=\"no-referrer\">"
            f"<title>{html.escape(title)}</title><style>{STYLE}{style}</style></head>\n"
            f"<body>{body}</body></html>\n")


# ---- executing --------------------------------------------------------------------------------


class _Manager(AsyncKernelManager):
    """Starts the limited kernel, for which nothing need be installed."""

    kernel_spec = KernelSpec(argv=["forked"], language="python")


class _Client(NotebookClient):
    """Executes a notebook; keeps the first part of what a cell puts out."""

    end = 0.0  # time.monotonic() at which no other cell is begun

    async def async_execute_cell(self, cell: Any, cell_index: int, *arguments: Any,
                                 **options: Any) -> Any:
        self.at, self.left = cell_index, MOST_OUTPUT
        if time.monotonic() > self.end:
            raise CellTimeoutError("out of time")
        return await super().async_execute_cell(cell, cell_index, *arguments, **options)

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        self.left -= len(str(msg["content"]))
        return super().output(outs, msg, display_id, cell_index) if self.left > 0 else None


def execute(cells: list[dict[str, Any]], scratch: Path, seconds: float, total: float
            ) -> dict[str, Any]:
    """Run a submission's code cells: {"outputs": of each, "notes": what went wrong}.

    `cells` as `plan.make` gives them; those with a check's name are not run, their verdict is
    known. For a child process: it goes to `scratch`, where the kernel's sockets are files.
    """
    confine.go_home(scratch)
    kernel.use()
    run = [(place, new_code_cell(cell["source"])) for place, cell in enumerate(cells)
           if cell["code"] and (not cell["name"] or cell["name"].endswith("-solution"))]
    manager = _Manager(connection_file=str(scratch / ".home" / "kernel.json"), transport="ipc",
                       ip="kernel")  # short: a socket's path may have 107 characters
    client = _Client(new_notebook(cells=[cell for _, cell in run]), km=manager, timeout=seconds,
                     allow_errors=True, interrupt_on_timeout=False, record_timing=False,
                     coalesce_streams=True, shell_timeout_interval=1,
                     resources={"metadata": {"path": str(scratch)}})
    client.end, client.at = time.monotonic() + total, 0
    notes = []
    try:
        client.execute()
    except (DeadKernelError, CellTimeoutError) as error:
        why = (f"this cell ran for more than {seconds:g} seconds"
               if isinstance(error, CellTimeoutError) else
               "this cell ended the kernel (a crash, or too much memory)")
        cell, *others = [cell for _, cell in run][client.at:]
        cell.outputs.append(new_output("error", ename="NotRun", evalue=why, traceback=[why]))
        notes.append(f"{why}: {(cell.source.strip().splitlines() or [''])[0][:60]}")
        for other in others:
            other.outputs = [new_output("error", ename="NotRun", evalue="", traceback=[
                "not run for this page, since a cell above ended the kernel"])]
    return {"outputs": {str(place): cell.outputs for place, cell in run}, "notes": notes}


# ---- the page ---------------------------------------------------------------------------------


class _Exporter(HTMLExporter):
    """nbconvert's HTML without a page around it; long or slow Markdown as plain text."""

    plain = False

    def default_filters(self) -> Any:
        yield from super().default_filters()
        yield "strip_files_prefix", clean  # its own takes minutes for 60,000 brackets

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        if self.plain or len(source) >= MOST_SHOWN:
            return f"<pre>{html.escape(source)}</pre>"
        return safe(super().markdown2html(context, source))  # by itself: what it opens, it closes


def _picture(data: Any) -> str:
    """Return a picture's base64 text if it is that, or ""."""
    text = clean(data)
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return ""
    return text


def _output(output: Any) -> nbformat.NotebookNode | None:
    """Return an output of known kinds and text, with no metadata but a picture's alt text."""
    match under(output, "output_type"):
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            return new_output("stream", name=name, text=clean(output.get("text")))
        case "error":
            lines = output.get("traceback")
            lines = [clean(line) for line in lines] if isinstance(lines, list) else []
            return new_output("error", ename=clean(output.get("ename")),
                              evalue=clean(output.get("evalue")), traceback=lines)
        case "display_data" | "execute_result":
            kept = {"text/plain": clean(under(output, "data", "text/plain"))}
            if (markup := under(output, "data", "text/html")) is not None:
                kept["text/html"] = safe(clean(markup))
            kept |= {kind: picture for kind in ("image/png", "image/jpeg")
                     if (picture := _picture(under(output, "data", kind)))}
            alt = clean(under(output, "metadata", "image/png", "alt"))
            return new_output("display_data", data=kept, metadata={
                "image/png": {"alt": html.escape(alt[:2000], quote=True)}} if alt else {})
    return None


def render(title: str, cells: list[dict[str, Any]], outputs: dict[str, list[dict[str, Any]]],
           said: dict[str, tuple[bool, str]], plain: bool) -> str:
    """Return the page of a graded notebook: its cells, what they gave, what each check said.

    `plain` shows Markdown as text: for a source that keeps the parser busy for minutes.
    """
    shown = []
    for place, cell in enumerate(cells):
        source = clean(cell["source"])
        source = source[:MOST_SHOWN] + "\n... cut here" * (len(source) > MOST_SHOWN)
        made = (new_code_cell if cell["code"] else new_markdown_cell)(source)
        if cell["code"]:
            made.outputs = list(filter(None, map(_output, outputs.get(str(place), []))))
            if cell["name"] in said:
                passed, text = said[cell["name"]]
                made.outputs = [new_output("stream", name="stdout" if passed else "stderr",
                                           text=clean(text))]
        shown.append(made)
    exporter = _Exporter(template_name="basic", exclude_input_prompt=True,
                         exclude_output_prompt=True, exclude_anchor_links=True)
    exporter.plain = plain
    body, _ = exporter.from_notebook_node(new_notebook(cells=shown),
                                          {"metadata": {"name": title}})
    return document(title, safe(body), HtmlFormatter().get_style_defs(".highlight"))


def index(name: str, rows: list[tuple[str, str, str, str]], pages: list[str], notes: list[str]
          ) -> str:
    """Return a student's first page: points, what each check said, links to the notebooks.

    `rows`: exercise, points, what the check said, and the answer that it judged.
    """
    cells = "\n".join(
        f"<tr><th scope=\"row\">{exercise}</th><td>{points}</td><td><pre>{html.escape(words)}</pre>"
        + (f"<details><summary>the answer</summary><pre>{html.escape(answer[:MOST_SHOWN])}</pre>"
           "</details>" if answer else "") + "</td></tr>"
        for exercise, points, words, answer in rows)
    links = "".join(f'<li><a href="{stem}.html">{stem}, as it was graded</a></li>'
                    for stem in pages)
    lines = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return document(name, f"<h1>{html.escape(name)}</h1><ul>{lines}{links}</ul>"
                          "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">exercise</th>"
                          "<th scope=\"col\">points</th><th scope=\"col\">what the check said</th>"
                          f"</tr></thead><tbody>\n{cells}\n</tbody></table></div>")
