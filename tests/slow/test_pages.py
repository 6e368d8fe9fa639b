"""Pages of feedback: what a student wrote runs nothing, loads nothing and hides nothing."""

import ast
import html.parser
import http.server
import json
import random
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
from tools.grading import page, plan, submission
from tools.grading.grader import NOTES
from tools.student import student_version

ROOT = Path(__file__).resolve().parents[2]
STEM = "02_emit_te_ingestion"
STUDENT = student_version(ROOT / "notebooks" / f"{STEM}.ipynb")
PICTURE = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
           "ErkJggg==")
# each calls URL if it runs or loads; what stands in a Markdown cell, and in text/html outputs
VECTORS = {
    "script": "<script src='URL'></script><script>fetch('URL')</script>",
    "handler": "<img src=x onerror=\"fetch('URL')\">",
    "handler on a div": "<div onmouseover=\"fetch('URL')\" style='position:fixed;inset:0'>.</div>",
    "autofocus": "<input autofocus onfocus=\"fetch('URL')\">",
    "picture": "![a](URL)<img src='URL'><img srcset='URL 1x'>",
    "picture in a link": "[![a](URL)](URL)",
    "style": "<style>body{display:none;background:url('URL')}@import 'URL';</style>",
    "style attribute": "<p style=\"background:url(URL)\">x</p>"
                       "<p style='background:u\\72l(URL)'>x</p>",
    "link": "<link rel=stylesheet href='URL'><link rel=prefetch href='URL'>",
    "frame": "<iframe src='URL'></iframe>"
             "<iframe srcdoc=\"<script>fetch('URL')</script>\"></iframe>",
    "object": "<object data='URL'></object><embed src='URL'>",
    "svg": "<svg onload=\"fetch('URL')\"><image href='URL'/><script>fetch('URL')</script></svg>",
    "svg animate": "<svg><animate onbegin=\"fetch('URL')\" attributeName=x dur=1s></svg>",
    "math": "<math><mtext><img src=x onerror=\"fetch('URL')\"></mtext></math>",
    "mutation": "<svg></p><style><a id=\"</style><img src=1 onerror=fetch('URL')>\">",
    "noscript": "<noscript><p title=\"</noscript><img src=x onerror=fetch('URL')>\"></noscript>",
    "base": "<base href='URL'><img src='relative.png'>",
    "refresh": "<meta http-equiv=refresh content='0;url=URL'>",
    "form": "<form id=f action='URL'><input type=submit></form><button form=f formaction='URL'>b",
    "javascript link": "[a](javascript:fetch('URL'))"
                       "<a href=\"javascript:fetch('URL')\" id=go>b</a>",
    "entity link": "<a href='&#106;avascript:fetch(`URL`)'>c</a>",
    "media": "<video src='URL' autoplay></video><audio src='URL' autoplay></audio>",
    "poster": "<video poster='URL'></video><source src='URL'><track src='URL'>",
    "details": "<details open ontoggle=\"fetch('URL')\">x</details>",
    "marquee": "<marquee onstart=\"fetch('URL')\">x</marquee>",
    "template": "<template><script>fetch('URL')</script></template>",
    "comment": "<!--[if true]><script>fetch('URL')</script><![endif]--><!-- --!><img src='URL'>",
    "open tags": "<div style='display:none;color:#fff'><details><table><tr><td><select><textarea>",
    "open comment": "words <!-- all that follows",
    "closed wrappers": "</div></div></div></body></html><img src='URL'>",
    "background": "<table background='URL'><tr><td background='URL'>x</table>"
                  "<body background='URL'>",
    "window": "<a href='URL' ping='URL' target=_blank>x</a>",
    "xlink": "<svg><use xlink:href='URL#x'/></svg>",
    "import": "<object type='text/html' "
              "data='data:text/html,<script>fetch(`URL`)</script>'></object>",
}
ATTRIBUTES = re.compile(r"^on|^(srcset|formaction|action|ping|background|poster|srcdoc|data|"
                        r"http-equiv)$", re.IGNORECASE)
FORBIDDEN = {"script", "iframe", "object", "embed", "link", "base", "form", "input", "button",
             "svg", "math", "video", "audio", "source", "track", "template", "noscript", "marquee",
             "select", "textarea", "applet", "frame"}


def _page(url: str) -> str:
    """A page with every vector in Markdown, in HTML output, and in the metadata of pictures."""
    cells, outputs = [{"source": "# The first heading", "code": False, "name": ""}], {}
    for text in VECTORS.values():
        text = text.replace("URL", url)
        cells.append({"source": f"words\n\n{text}", "code": False, "name": ""})
        outputs[str(len(cells))] = [
            {"output_type": "display_data", "data": {"text/html": text, "text/plain": text}},
            {"output_type": "display_data", "data": {"text/markdown": text, "text/latex": text}},
            {"output_type": "display_data", "data": {"image/svg+xml": text,
                                                     "application/javascript": f"fetch('{url}')"}},
            {"output_type": "display_data", "data": {"image/png": PICTURE}, "metadata": {
                "image/png": {"width": f"1 onerror=fetch('{url}')", "alt": f"\" onerror=\"{url}",
                              "unconfined": f"> {text}"}}},
            {"output_type": "display_data", "data": {"image/png": f"x' onerror='{url}"}},
            {"output_type": "stream", "name": "stdout", "text": text},
            {"output_type": "error", "ename": text, "evalue": text, "traceback": [text]}]
        cells.append({"source": f"# {text}", "code": True, "name": ""})
    cells.append({"source": "checks.exercise_2_1(f)", "code": True, "name": "2.1"})
    said = {"2.1": (False, "THE VERDICT OF THE CHECK <script>")}
    body = page.render(cells, outputs, said)
    return page.document("a title </title><script>", page.safe(body), "en")


class _Reader(html.parser.HTMLParser):
    """Notes what is in a page that may run, load or leave."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += 1
        self.found += [tag] if tag in FORBIDDEN else []
        for name, value in attrs:
            value = value or ""
            if ATTRIBUTES.match(name) and tag != "meta":
                self.found.append(f"{tag} {name}")
            if name == "src" and not value.startswith("data:image/png;base64,"):
                self.found.append(f"{tag} src={value}")
            if name == "href" and not re.match(r"https?://|#|mailto:", value):
                self.found.append(f"{tag} href={value}")
            if name == "style" and re.search(r"url|position|display|\\", value):
                self.found.append(f"{tag} style={value}")


def test_no_vector_is_left_in_a_page() -> None:
    assert len(VECTORS) >= 20
    reader = _Reader()
    text = _page("http://127.0.0.1:9/called")
    head, body = text.split("</head>")
    reader.feed(body)
    assert reader.found == [] and reader.tags > 500
    assert "default-src 'none'" in head and "script" not in head.replace("&lt;script&gt;", "")
    assert "<style>" not in body and "<!--" not in body
    assert "THE VERDICT OF THE CHECK" in body and "The first heading" in body


@pytest.mark.parametrize("name", ["script", "handler", "picture", "style attribute", "form"])
def test_the_reader_finds_what_is_not_cleaned(name: str) -> None:
    reader = _Reader()
    reader.feed(VECTORS[name].replace("![a](URL)", "<img src='URL'>"))
    assert reader.found


CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome")
                 if (path := shutil.which(name))), None)


def _open(path: Path, profile: Path) -> str:
    """Open a page in a headless browser; return the document as it is after its scripts ran."""
    return subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", f"--user-data-dir={profile}", "--virtual-time-budget=3000",
         "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120,
        check=True).stdout


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_a_browser_stays_silent(tmp_path: Path) -> None:
    """Nothing of any vector reaches a listener; without the two walls, many do."""
    called: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            called.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        text = _page(f"{url}/cleaned")
        (tmp_path / "cleaned.html").write_text(text)
        body = "".join(f"<p>{vector.replace('URL', f'{url}/policy')}</p>"
                       for name, vector in VECTORS.items() if "open" not in name
                       and name != "refresh")  # which no policy keeps from leaving the page
        (tmp_path / "policy.html").write_text(page.document("x", body, "en"))
        (tmp_path / "bare.html").write_text(f"<body>{body.replace('/policy', '/bare')}")
        shown = _open(tmp_path / "cleaned.html", tmp_path / "one")
        _open(tmp_path / "policy.html", tmp_path / "two")
        _open(tmp_path / "bare.html", tmp_path / "three")
        server.shutdown()
    assert "THE VERDICT OF THE CHECK" in shown
    assert [path for path in called if path in ("/cleaned", "/policy")] == []
    assert called.count("/bare") >= 5, "the listener hears what is not kept from calling"


# ---- notebooks of any shape ---------------------------------------------------------------------

ODD: list[Any] = [None, True, 0, -1, 1e400, "", "x", "\ud800", "\x00", [], {}, [[]], [None],
                  {"": 0}, "9" * 5000, 10 ** 400, "<script>", ["a", 1, None], {"grade_id": []},
                  "2.1", {"nbgrader": 7}, "\u202e", "code", [{}], "%%time\n", "import" * 50]


def _places(node: Any, path: tuple = ()) -> list[tuple]:
    """Return the path of every value in JSON."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) \
        if isinstance(node, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def mutated(seed: int) -> bytes:
    """Return a student's notebook with one to four values of its JSON replaced or taken out."""
    choose = random.Random(seed)
    notebook = new_notebook(cells=[*STUDENT.cells[:6], new_markdown_cell("# a"), new_code_cell("1"),
                                   *(c for c in STUDENT.cells if "nbgrader" in c.metadata)])
    content = json.loads(nbformat.writes(notebook))
    for _ in range(choose.randint(1, 4)):
        path = choose.choice([place for place in _places(content) if place])
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        if choose.random() < 0.2:
            del parent[path[-1]]
        else:
            parent[path[-1]] = choose.choice(ODD)
    data = json.dumps(content).encode()
    if choose.random() < 0.1:
        data = data[:choose.randrange(len(data))]
    return data


def test_what_python_fails_to_parse_is_parsed_again(monkeypatch) -> None:
    answers = iter([SystemError("AST constructor recursion depth mismatch"), ast.parse("a = 1")])

    def parse(code: str) -> ast.Module:
        answer = next(answers)
        if isinstance(answer, ast.Module):
            return answer
        raise answer

    monkeypatch.setattr(submission.ast, "parse", parse)
    assert [statement.binds for statement in submission.statements("a = 1", 0)] == [{"a"}]


def test_any_json_is_graded_or_named() -> None:
    """500 mutated notebooks: each gets a plan with all checks, some a page (slow), or one line."""
    named = 0
    for seed in range(500):
        try:
            made = plan.make(submission.cells(submission.parsed(mutated(seed))), STUDENT)
        except ValueError as error:
            assert re.match(r".+$", str(error)), seed
            named += 1
            continue
        made = json.loads(json.dumps(made))
        assert list(made["sources"]) == ["2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7"], seed
        assert [cell["name"] for cell in made["cells"]].count("2.1") == 1
        assert all(kind in NOTES and number in made["sources"] for kind, number in made["notes"])
        if seed % 5 == 0:
            text = page.render(made["cells"], {}, {"2.1": (True, "ok")})
            assert page.safe(text).encode() and text
    assert 20 < named < 300, named


@pytest.mark.parametrize("output", [
    {}, {"output_type": []}, {"output_type": "stream", "text": 5}, {"output_type": "error"},
    {"output_type": "display_data", "data": []}, {"output_type": "stream", "text": ["\ud800", 1]},
    {"output_type": "display_data", "data": {"image/png": 7, "text/html": ["<b>", 7]}},
    {"output_type": "display_data", "data": {"image/png": "!"}, "metadata": {"image/png": 3}}])
def test_any_output_is_shown_or_left_out(output: dict) -> None:
    cells = [{"source": "1", "code": True, "name": ""}]
    assert page.render(cells, {"0": [output]}, {})
