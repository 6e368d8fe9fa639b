// Walk at random through the programs of the page: node live_walks.js live.js data.json seed walks steps
const [, , model, file, seed, walks, steps] = process.argv, { readFileSync } = require("node:fs");
const liveModel = new Function(`${readFileSync(model, "utf8")}; return liveModel;`)();
let now = Number(seed);
const below = (count) => { // the same numbers everywhere
  now = (Math.imul(now, 1664525) + 1013904223) >>> 0;
  return Math.floor(now / 2 ** 32 * count);
};
const found = [];
for (const program of JSON.parse(readFileSync(file, "utf8")).programs) {
  const { start, choices, choose, script, visits, nested } = liveModel(program);
  for (let walk = 0; walk < Number(walks); walk++) {
    let state = start();
    const taken = [];
    for (let step = 0; step < Number(steps); step++) {
      const offered = choices(state, below(state.loops.length));
      const { what, code, call, state: next } = choose(state, offered[below(offered.length)]);
      state = next || state;
      const problems = ["parallel", "vectorized"].filter((kind) => nested(state, kind));
      taken.push({ what, code, call, problems, script: script(state), ...visits(state) });
    }
    found.push({ id: program.id, source: program.source, taken });
  }
}
console.log(JSON.stringify(found));
