"""Sphinx's settings for the site; `make site` (tools/site) says the rest in a file."""

import html
import json
import os
import textwrap
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from tools.site import search, sections, tables

SITE = json.loads(Path(os.environ["SITE"]).read_text(encoding="utf-8"))
OPENING = "conv2d_before_and_target.png"  # the picture of the page to arrive at

project = html_title = SITE["title"]
author = "the authors of the course"
language = {"en": "en", "zh": "zh_CN"}[SITE["language"]]
extensions = ["myst_nb"]
section_anchors = SITE["anchors"]
other_names = SITE["aliases"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "tasklist"]
# a part may begin with an exercise, one level deeper
suppress_warnings = ["myst.header"]
templates_path = ["_templates"]
smartquotes = False  # code and messages in prose are copied from

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_css_files = ["course.css"]
html_js_files = ["print.js", "section.js", "copy.js", "search.js", "solved.js", "scroll.js"]
html_baseurl = SITE["address"] and SITE["address"] + ("zh/" if SITE["language"] == "zh" else "")
html_additional_pages = {"search": "search.html"}
html_copy_source = False
html_use_index = False
html_math_renderer = "mathml"
html_last_updated_fmt = None
html_theme_options = {
    "article_header_end": ["other-language.html", "article-header-buttons.html"],
    "navbar_persistent": [],
    "article_footer_items": ["about-page.html"],
    "use_download_button": False,
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "extra_footer": SITE["built_from"],
    "footer_content_items": ["extra-footer"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "search_bar_text": SITE["search"],
}
html_context = {"site": SITE, "default_mode": "auto"}
html_favicon = "_static/favicon.svg"


def _inline(writer, node):
    writer.body.append(str(tex2mathml(node.astext())))
    raise nodes.SkipNode


def _block(writer, node):
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _describe(app, pagename, templatename, context, doctree):
    """Say in the page's head what it is about: for search engines, and for who shares its link."""
    if doctree is None:
        return
    paragraphs = (node.astext().replace("\n", " ") for node in doctree.findall(nodes.paragraph))
    about = SITE["about"] if pagename == "index" else next(
        (text for text in paragraphs if len(text) > 60 or (SITE["language"] == "zh"
                                                           and len(text) > 25)), SITE["about"])
    said = {"description": textwrap.shorten(about, 200, placeholder=" …")}
    shared = {"og:type": "article", "og:site_name": SITE["title"], "og:title": context["title"],
              "og:description": said["description"]}
    lines = [f'<meta name="{name}" content="{html.escape(text)}">' for name, text in said.items()]
    if address := SITE["address"]:
        shared["og:url"] = f"{html_baseurl}{pagename}.html"
        shared["og:image"] = f"{html_baseurl}_images/{OPENING}"
        here = {code: f"{address}{folder}{pagename}.html"
                for code, folder in (("en", ""), ("zh-CN", "zh/"), ("x-default", ""))}
        lines += [f'<link rel="alternate" hreflang="{code}" href="{link}">'
                  for code, link in here.items()]
    lines += [f'<meta property="{name}" content="{html.escape(text)}">'
              for name, text in shared.items()]
    context["metatags"] = context.get("metatags", "") + "\n" + "\n".join(lines)


def setup(app):
    for name in ("section_anchors", "other_names"):  # above; a page is read again if they change
        app.add_config_value(name, {}, "env")
    app.add_transform(sections.Named)
    app.connect("builder-inited", search.replace)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", search.write)
    app.connect("doctree-resolved", tables.stack)  # in what is written, not what is stored
    # MathML: browsers draw it themselves, and no script comes from a network
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None),
                               block_renderers=(_block, None))
