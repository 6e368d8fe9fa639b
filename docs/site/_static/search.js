// The site's search: which sections answer a query, and the words of it on the page that one opens.
"use strict";

const WORD = /\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{L}\p{N}_])+(?:(?:\.|::)(?:(?!\p{Script=Han})[\p{L}\p{N}_])+)*/gu;
const HAN = /\p{Script=Han}/u;

const WORDS = new Intl.Segmenter("zh", { granularity: "word" });

const stem = (word) => word.replace(/^([a-z]{3,}?)(?:ations?|ings?|ed|es|(?<!s)s|e)$/, "$1")
  .replace(/iz$/, "is");

// What a piece of text is found by, the best first. A name of code is found whole, without what is
// in front of a dot, and by its parts; of Chinese, which has no spaces, each two neighbours.
const forms = (piece) => {
  if (HAN.test(piece)) return [...piece].map((_, at, all) => all.slice(at, at + 2).join(""));
  const whole = piece.toLowerCase();
  if (/^[\d.]+$/.test(whole)) return [whole];  // the number of an exercise
  const tails = [...whole.matchAll(/\.|::/g)].map((dot) => whole.slice(dot.index + dot[0].length));
  const parts = piece.split(/[._:]+|(?<=\p{Ll})(?=\p{Lu})/u).filter((part) => part.length > 1);
  if (parts.length < 2) return [stem(whole)];
  return [...new Set([whole, ...tails, ...parts.map((part) => stem(part.toLowerCase()))])];
};

const pieces = (text) => [...text.matchAll(WORD)];
// A text as it is compared with another, word for word.
const phrase = (text) => {
  const words = pieces(text).map(([piece]) => HAN.test(piece) ? piece : ` ${forms(piece)[0].replace(/\.|::/g, " ")} `);
  return words.join(" ").replace(/ +/g, " ");
};
// The places in a text, [start, end], of what is found by one of these forms.
const places = (text, wanted) => pieces(text).flatMap(({ 0: piece, index }) => {
  const all = forms(piece);
  if (!HAN.test(piece)) return all.some((form) => wanted.has(form)) ? [[index, index + piece.length]] : [];
  return all.flatMap((form, at) => wanted.has(form) ? [[index + at, index + at + form.length]] : []);
}).reduce((joined, [start, end]) => {
  const last = joined.at(-1);
  if (last && start <= last[1]) last[1] = Math.max(end, last[1]); else joined.push([start, end]);
  return joined;
}, []);

const FIELDS = { title: 5, names: 5, above: 1, text: 1.5, code: 0.7 };

class Finder {
  constructor(sections) {
    this.sections = sections.map((section) => ({
      ...section, keys: section.names.map(phrase),
      phrases: { title: phrase(section.title), text: phrase(section.text) },
    }));
    this.index = new Map();  // of each form, of each section's number, how often in which field
    sections.forEach((section, number) => {
      for (const field of Object.keys(FIELDS)) {
        for (const [piece] of pieces([section[field]].flat().join("\n"))) {
          for (const form of HAN.test(piece) ? [...forms(piece), ...piece] : forms(piece)) {
            if (!this.index.has(form)) this.index.set(form, new Map());
            const found = this.index.get(form);
            if (!found.has(number)) found.set(number, {});
            found.get(number)[field] = (found.get(number)[field] ?? 0) + 1;
          }
        }
      }
    });
  }

  rare(form) {  // as BM25 has it
    const many = this.index.get(form)?.size ?? 0;
    return Math.log(1 + (this.sections.length - many + 0.5) / (many + 0.5));
  }

  // What to look for: for each word of a query the forms that are here, and what the word counts.
  wishes(query) {
    return pieces(query).flatMap(({ 0: piece, index }) => {
      const all = forms(piece);
      if (HAN.test(piece)) {
        const cuts = new Set([...WORDS.segment(query)].map((word) => word.index));
        return (all.length > 1 ? all.slice(0, -1) : all).filter((form) => this.index.has(form))
          .map((form, at) => ({ forms: [form], counts: cuts.has(index + at + 1) ? 0.3 : 1 }));
      }
      const whole = all.find((form) => this.index.has(form));
      return { forms: whole ? [whole] : [...this.index.keys()].filter((form) => form.startsWith(all[0])), counts: 1 };
    }).filter((wish) => wish.forms.length)
      .map((wish) => ({ ...wish, counts: wish.counts * Math.max(...wish.forms.map((form) => this.rare(form))) }));
  }

  // The sections that answer a query, the best first, and the forms that are marked in them.
  find(query) {
    const wishes = this.wishes(query);
    const sum = wishes.reduce((total, wish) => total + wish.counts, 0);
    const asked = phrase(query);
    const results = [];
    this.sections.forEach((section, number) => {
      let score = 0, covered = 0;
      for (const wish of wishes) {
        const best = Math.max(...wish.forms.map((form) => this.worth(form, number)));
        score += best * wish.counts;
        covered += best && wish.counts;
      }
      if (!score) return;
      score *= (covered / sum) ** 2;
      const share = (part, whole) => whole.includes(part) ? part.trim().length / whole.trim().length : 0;
      score += 6 * sum * Math.max(...section.keys.map((name) => share(name, asked))) ** 2;
      score += 5 * sum * share(asked, section.phrases.title);
      if (section.phrases.text.includes(asked)) score += sum;
      if (!section.above.length) score *= 0.4;  // the top of a page, if none of its sections does
      if (!/^\d/.test(section.page)) score *= 0.8;  // the notebooks explain
      results.push({ section, score });
    });
    results.sort((one, other) => other.score - one.score);
    const usual = Math.log(3);  // in a third of all sections
    const told = wishes.flatMap((wish) => wish.forms);
    const rare = told.filter((form) => this.rare(form) > usual);
    return { results, wanted: new Set(rare.length ? rare : told) };
  }

  worth(form, number) {
    const found = this.index.get(form)?.get(number) ?? {};
    return Object.entries(found).reduce((total, [field, often]) =>
      total + FIELDS[field] * often / (often + 1), 0);
  }
}

if (typeof module !== "undefined") module.exports = { Finder, forms, places };
