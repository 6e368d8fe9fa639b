// The site's search: which sections answer a query, and the words of it on the page that one opens.
"use strict";
(() => {
  const HAN = /\p{Script=Han}/u;
  const LATIN = String.raw`(?:(?!\p{Script=Han})[\p{L}\p{N}_])+(?:\+\+)?`;  // te, compute; with dots: te.compute
  const WORD = new RegExp(String.raw`\p{Script=Han}+|${LATIN}(?:(?:\.|::)${LATIN})*`, "gu");
  const WORDS = new Intl.Segmenter("zh", { granularity: "word" });

  // "scheduling", "schedules" and "schedule" are one word, "vectorized" and "vectorised" another,
  // "planner", "planning" and "plan" a third
  const stem = (word) => word.replace(/^([a-z]{3,}?)(?:ations?|ings?|ed|es|(?<!s)s|e)$/, "$1")
    .replace(/iz$/, "is").replace(/^([a-z]{4,})(?:er|ion|ment)$/, "$1")
    .replace(/(?<=[a-z])([bdgkmnprt])\1$/, "$1");

  // What a piece of text is found by, the best first. A name of code is found whole, without what is
  // in front of a dot or behind it, and by its parts; of Chinese, which has no spaces, each two neighbours.
  const known = new Map();
  const forms = (piece) => known.get(piece) ?? known.set(piece, split(piece)).get(piece);
  const split = (piece) => {
    if (HAN.test(piece)) return [...piece].map((_, at, all) => all.slice(at, at + 2).join(""));
    const whole = piece.toLowerCase();
    if (/^[\d.]+$/.test(whole)) return [whole];  // the number of an exercise
    const dots = [...whole.matchAll(/\.|::/g)];
    const tails = dots.map((dot) => whole.slice(dot.index + dot[0].length));
    const heads = dots.map((dot) => whole.slice(0, dot.index)).filter((head) => head.length > 2);
    const parts = piece.split(/[._:]+|(?<=\p{Ll})(?=\p{Lu})/u).filter((part) => part.length > 1)
      .map((part) => stem(part.toLowerCase()));
    return [...new Set([parts.length > 1 ? whole : stem(whole), ...tails, ...heads, ...parts])];
  };
  const bare = (form) => form.replace(/[._:]/g, "");  // call_tir, as calltir

  // Words of a question that say nothing of what it is about.
  const ASKING = new Set(("a an the is are was be do does did can could should i you we my me it its what which how why "
    + "where when who whom to of in on for from with by at get got have has use using there this that and or not if "
    + "mean means really please see want need know try trying much many keep keeps im dont doesnt cant cannot wont "
    + "isnt don doesn won isn t s re ll ve vs versus difference between than then as so into while").split(" "));
  // Words of a question about something that went wrong.
  const FAILING = new RegExp(String.raw`\b(errors?|exceptions?|fail(s|ed|ure)?|crash(es|ed)?|broken|d(ies|ied|ying)|wrong`
    + String.raw`|missing|cannot|can't|unable|invalid|unexpected|mismatch)\b|报错|错误|失败|崩溃|出错|不匹配|找不到|无法|异常`, "i");
  // Words of a question for what a page comes to.
  const RECAP = /\b(recaps?|summar(y|ies|ise|ize)|takeaways?|key points)\b|小结|总结|要点|回顾/i;
  const ZH_ASKING = /什么是|是什么|什么|怎么样|怎么|怎样|如何|为什么|为何|哪里|哪个|在哪|能不能|可不可以|可以|吗|呢|的/gu;
  const without = (query) => {
    const left = query.replace(ZH_ASKING, " ");
    const words = pieces(left).map(([piece]) => piece)
      .filter((piece) => !ASKING.has(piece.toLowerCase()));
    return words.length ? words.join(" ") : query;
  };

  // How many letters are to be changed, put in, left out or exchanged with their neighbour, if at most `most`.
  const apart = (one, other, most) => {
    if (Math.abs(one.length - other.length) > most) return Infinity;
    let before = [], last = [...Array(other.length + 1).keys()];
    for (let i = 1; i <= one.length; i++) {
      const row = [i];
      for (let j = 1; j <= other.length; j++) {
        row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (one[i - 1] !== other[j - 1]));
        if (one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
          row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      if (Math.min(...row) > most) return Infinity;
      [before, last] = [last, row];
    }
    return last.at(-1);
  };

  const pieces = (text) => [...text.matchAll(WORD)];
  // A text as it is compared with another, word for word.
  const phrase = (text) => {
    const words = pieces(text).map(([piece]) =>
      HAN.test(piece) ? piece : ` ${forms(piece)[0].replace(/\.|::/g, " ")} `);
    return words.join(" ").replace(/ +/g, " ");
  };

  // The same of the words that say what it is about.
  const telling = (text) => phrase(pieces(text).map(([piece]) => piece)
    .filter((piece) => !ASKING.has(piece.toLowerCase())).join(" "));

  // The places in a text, [start, end], of what is found by one of these forms.
  const places = (text, wanted) => {
    const joined = [];
    for (const { 0: piece, index } of pieces(text)) {
      forms(piece).forEach((form, at) => {
        if (!wanted.has(form)) return;
        const [start, end] = HAN.test(piece) ? [index + at, index + at + form.length]
          : [index, index + piece.length];
        const last = joined.at(-1);
        if (last && start <= last[1]) last[1] = Math.max(end, last[1]); else joined.push([start, end]);
      });
    }
    return joined;
  };

  // How much a word counts in each part of a section.
  const FIELDS = { title: 4, names: 9, above: 2.5, text: 1.25, code: 0.7 };

  const MESSAGES = new Set(["tvm_errors", "troubleshooting"]), LISTS = new Set(["terms", "changelog"]);
  const CALM = 0.6;

  class Finder {
    constructor(sections) {
      this.sections = sections.map((section) => ({
        ...section, keys: section.names.map(phrase), head: phrase(section.title),
        said: telling(section.text),
      }));
      this.index = new Map();  // of each form, of each section's number, how often in which field
      this.spelt = new Map();  // of each word and name as it is spelt, the form by which it is found
      this.pairs = new Map();  // of two words without their space, the forms of both
      sections.forEach((section, number) => {
        for (const field of Object.keys(FIELDS)) {
          const text = [section[field]].flat().join("\n");
          let last = null;
          for (const { 0: piece, index } of pieces(text)) {
            if (!HAN.test(piece)) {
              forms(piece).forEach((form) => this.spelt.has(form) || this.spelt.set(form, form));
              this.spelt.set(piece.toLowerCase(), forms(piece)[0]);
            }
            for (const form of HAN.test(piece) ? [...forms(piece), ...piece] : forms(piece)) {
              if (!this.index.has(form)) this.index.set(form, new Map());
              const found = this.index.get(form);
              if (!found.has(number)) found.set(number, {});
              found.get(number)[field] = (found.get(number)[field] ?? 0) + 1;
            }
            if (last && last.index + last[0].length + 1 === index && /[ -]/.test(text[index - 1]))
              this.pairs.set(stem((last[0] + piece).toLowerCase()), [forms(last[0])[0], forms(piece)[0]]);
            last = { 0: piece, index };
          }
        }
      });
    }

    rare(form) {  // as BM25 has it
      const many = this.index.get(form)?.size ?? 0;
      return Math.log(1 + (this.sections.length - many + 0.5) / (many + 0.5));
    }

    // What a word that is nowhere here may be: a beginning; a name without its dots and underscores, or another
    // library's name, of words that are all here (nn.GELU); two words without their space; a word that differs
    // by a letter, or of a long one by two; the parts of it that are here.
    guessed(word, [form, ...parts]) {
      const those = (fit) => [...new Set([...this.spelt].filter(([other]) => fit(other)).map((one) => one[1]))];
      for (const start of word.length > 3 ? [word, form] : [form]) {
        const begun = those((other) => other.startsWith(start) || bare(other) === bare(start));
        if (begun.length) return [begun];
      }
      const words = parts.filter((one) => !/[._:]/.test(one));
      const here = words.filter((one) => this.index.has(one)).map((one) => [one]);
      if (here.length && here.length === words.length) return here;
      const pair = this.pairs.get(form);
      if (pair) return pair.map((part) => [part]);
      for (let most = 1; most <= (word.length < 4 ? 0 : word.length < 8 ? 1 : 2); most++) {
        const near = those((other) => apart(word, other, most) <= most);
        if (near.length) return [[near.reduce((one, other) => this.rare(other) < this.rare(one) ? other : one)]];
      }
      if (here.length) return here;
      for (let cut = 2; cut <= form.length - 3; cut++) {  // "autotuning": the longest end that is a word
        const end = stem(form.slice(cut));
        if (end.length > 2 && this.index.has(end)) return [[end]];
      }
      return [];
    }

    // What to look for: for each word of a query the forms that are here, and what the word counts.
    wishes(query) {
      const words = new Set([...WORDS.segment(query)].map(({ index }) => index));
      const asked = pieces(query);
      const wishes = asked.flatMap(({ 0: piece, index }) => {
        const all = forms(piece);
        if (HAN.test(piece)) {  // two letters of two words count less
          return (all.length > 1 ? all.slice(0, -1) : all).map((form, at) =>
            ({ found: this.index.has(form) ? [form] : [], part: words.has(index + at + 1) ? 0.5 : 1 }));
        }
        const best = [all[0], ...all.slice(1).filter((form) => /[._:]/.test(form))]
          .find((form) => this.index.has(form));
        return best ? [{ found: [best], part: 1 }]
          : this.guessed(piece.toLowerCase(), all).map((found) => ({ found, part: 0.8, piece }));
      });
      asked.slice(1).forEach(({ 0: piece }, at) => {  // "cache write" is also cache_write
        const name = `${asked[at][0]}_${piece}`.toLowerCase();
        if (this.index.has(name)) wishes.push({ found: [name], part: 1 });
      });
      return wishes.filter(({ found }) => found.length).map(({ found, part, piece }) =>
        ({ found, piece, counts: part * Math.max(...found.map((form) => this.rare(form))) }));
    }

    // The sections that answer a query, the best first, and the forms that are marked in them.
    find(query) {
      const wishes = this.wishes(without(query));
      const failing = FAILING.test(query);
      const sum = wishes.reduce((total, wish) => total + wish.counts, 0);
      // a word that is nowhere here, as the word that it may be, where that is one
      const meant = wishes.reduce((text, { found, piece }) =>
        piece && found.length === 1 ? text.replace(piece, found[0]) : text, without(query));
      const asked = [...new Set([query, without(query), meant])].map(phrase);
      const heard = [query, meant].map(telling)  // three words in a row are a quotation
        .filter((one) => one.trim().split(" ").length > 2);
      const share = (part, whole) =>
        whole.includes(part) ? part.trim().length / whole.trim().length : 0;
      const most = (of) => Math.max(...asked.map(of));
      const results = [];
      this.sections.forEach((section, number) => {
        let score = 0, covered = 0, named = 0;
        for (const wish of wishes) {
          const best = Math.max(...wish.found.map((form) => this.worth(form, number)));
          score += best * wish.counts;
          covered += best && wish.counts;
          const fields = wish.found.map((form) => this.index.get(form).get(number));
          named += fields.some((has) => has?.title || has?.names) ? wish.counts : 0;
        }
        if (!score) return;
        score += 1.5 * named ** 2 / sum;
        score *= covered / sum;
        const quoted = heard.some((one) => section.said.includes(one));
        if (quoted) score += 3 * sum;
        else if (MESSAGES.has(section.page) && !failing) score *= CALM;
        // what the section is of, as the query or a part of it; the query as a part of its title
        score += 4 * sum * Math.max(...section.keys.map((name) => most((one) => share(name, one)))) ** 3;
        score += 5 * sum * most((one) => share(one, section.head));
        if (MESSAGES.has(section.page) && failing) score *= 3;
        if (!section.above.length) score *= 0.5;  // the top of a page, if none of its sections does
        if (section.id === "recap") score *= RECAP.test(query) ? 3 : 0.5;  // it repeats what others explain
        if (LISTS.has(section.page)) score *= 0.6;  // they name what others explain
        results.push({ section, score });
      });
      results.sort((one, other) => other.score - one.score);
      const usual = Math.log(3);  // in a third of all sections
      const told = wishes.flatMap((wish) => wish.found);
      const rare = told.filter((form) => this.rare(form) > usual);
      return { results, wanted: new Set(rare.length ? rare : told) };
    }

    worth(form, number) {
      const found = this.index.get(form)?.get(number) ?? {};
      return Object.entries(found).reduce((total, [field, often]) =>
        total + FIELDS[field] * often / (often + 2), 0);
    }
  }

  // The paragraph of a section in which most is found, or its first; a long one around the first word.
  const excerpt = (text, wanted) => {
    const lines = text.split("\n");
    const many = (line) => new Set(places(line, wanted).map(([from, to]) => line.slice(from, to))).size;
    const line = lines.reduce((best, each) => many(each) > many(best) ? each : best);
    const most = HAN.test(line) ? 110 : 220, first = places(line, wanted)[0]?.[0] ?? 0;
    if (line.length <= most) return line;
    let from = Math.max(0, Math.min(first - 60, line.length - most)), to = from + most;
    if (!HAN.test(line)) {
      from = from && line.indexOf(" ", from) + 1;
      to = line.lastIndexOf(" ", to);
    }
    return `${from ? "… " : ""}${line.slice(from, to)}${to < line.length ? " …" : ""}`;
  };

  // Fill an element with a text, and the words of it that were looked for marked.
  const fill = (element, text, wanted) => {
    let done = 0;
    for (const [from, to] of places(text, wanted)) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(from, to);
      element.append(text.slice(done, from), mark);
      done = to;
    }
    element.append(text.slice(done));
    return element;
  };

  const showResults = (list, query) => {
    const { results, wanted } = new Finder(SECTIONS).find(query);
    const shown = results.filter(({ score }) => score > results[0].score / 20).slice(0, 20);
    list.replaceChildren(...shown.map(({ section }) => {
      const item = document.createElement("li");
      const add = (name, words, of = item) => of.appendChild(
        Object.assign(document.createElement(name), words));
      const words = encodeURIComponent([...wanted].join(" "));
      const href = `${section.page}.html?found=${words}#${section.id}`;
      fill(add("a", { href }), section.title, wanted);
      add("p", { className: "above", textContent: section.above.join(" › ") });
      fill(add("p", {}), excerpt(section.text, wanted), wanted);
      return item;
    }));
    const status = document.getElementById("found");
    const [some, none] = JSON.parse(status.dataset.said);
    status.textContent = shown.length ? some.replace("{0}", shown.length) : none;
  };

  // Mark the words that led here. Where the section has them only in a folded hint, it opens.
  const markFound = (article, wanted) => {
    const texts = [], walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest("script, style, math") ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_ACCEPT);
    let end = 0;
    while (walker.nextNode()) {
      texts.push({ node: walker.currentNode, start: end });
      end += walker.currentNode.length;
    }
    let at = 0;
    const spot = (place) => {  // places come in order
      while (texts[at + 1]?.start < place) at++;
      return [texts[at].node, place - texts[at].start];
    };
    const ranges = places(texts.map(({ node }) => node.data).join(""), wanted).map(([from, to]) => {
      const range = new Range();
      range.setStart(...spot(from));
      range.setEnd(...spot(to));
      return range;
    });
    CSS.highlights?.set("found", new Highlight(...ranges));
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const section = target?.closest("section");
    const folds = ranges.map((range) => range.endContainer.parentElement)
      .filter((element) => section && element.closest("section") === section)
      .map((element) => element.closest("details:not(.hide)"));
    if (folds.every((fold) => fold)) folds[0]?.setAttribute("open", "");
  };

  if (typeof module !== "undefined") module.exports = { Finder, excerpt, forms, places };
  else addEventListener("DOMContentLoaded", () => {
    const asked = new URLSearchParams(location.search);
    const list = document.getElementById("results"), article = document.querySelector(".bd-article");
    if (list) {
      const query = asked.get("q") ?? "";
      for (const input of document.querySelectorAll("input[name=q]")) input.value = query;
      document.querySelector(".bd-article input[name=q]").focus();
      if (query) showResults(list, query);
    } else if (asked.has("found") && article) {
      markFound(article, new Set(asked.get("found").split(" ")));
      addEventListener("keydown", ({ key }) => {
        if (key === "Escape") CSS.highlights?.delete("found");
      });
    }
  });
})();
