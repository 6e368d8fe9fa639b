// Answer queries, a JSON list on standard input, from a site's sections.js: page, title, anchor.
"use strict";
const fs = require("fs");
const [script, sections] = process.argv.slice(2);
const { Finder } = require(script);
const finder = new Finder(new Function(`${fs.readFileSync(sections, "utf8")}; return SECTIONS;`)());
const queries = JSON.parse(fs.readFileSync(0, "utf8"));
console.log(JSON.stringify(queries.map((query) => finder.find(query).results.slice(0, 5)
  .map(({ section, score }) => [section.page, section.title, section.id, Math.round(score)]))));
