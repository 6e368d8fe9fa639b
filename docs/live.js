// The loops of the page live.html, without the page. plots/forms.py asked TVM for the forms of a
// program; here they are put in the order, and get the kinds, that were chosen. Nothing of a
// browser is used: tests run this file under Node, beside TVM.
const liveModel = (program) => {
  const read = (number) => {
    const [flat, lines, no, flatSteps] = program.forms[number];
    const names = flat.filter((_, at) => at % 2 === 0), extents = flat.filter((_, at) => at % 2);
    const steps = new Map();
    for (let at = 0; at < flatSteps.length; at += 3) {
      const [first, second, to] = flatSteps.slice(at, at + 3);
      steps.set(`${names[first]} ${second < 0 ? -second : names[second]}`, to);
    }
    return { extents: new Map(names.map((name, at) => [name, extents[at]])), steps,
      refused: new Set(no.map((at) => names[at])), lines: lines.map((line) => program.lines[line]) };
  };
  const state = (number, order, kinds) => {
    const form = read(number);
    return { ...form, number, loops: order.map((name) => ({ name, extent: form.extents.get(name), kind: kinds[name] || "serial" })) };
  };
  const start = () => state(0, program.order, {});

  // each choice at a loop: [primitive, number of the loop from outside, factor or 0]
  const choices = ({ loops }, at) => {
    const inside = loops.length - at - 1, found = program.factors[loops[at].extent].map((factor) => ["split", at, factor]);
    if (inside) found.push(["reorder", at, 0]);
    if (inside > 1) found.push(["innermost", at, 0]);
    if (inside) found.push(["fuse", at, 0]);
    return [...found, ["vectorize", at, 0], ["parallel", at, 0]];
  };
  const KINDS = { vectorize: "vectorized", parallel: "parallel" };

  // what comes of a choice: `code`, the line of Python; `call`, short, for people; `what`: done
  // with the new `state`, refused by TVM, already so, or far: in none of the forms
  function choose(now, [op, at, factor]) {
    const order = now.loops.map((loop) => loop.name), name = order[at], inner = order[at + 1];
    const kinds = Object.fromEntries(now.loops.map((loop) => [loop.name, loop.kind]));
    let result = "", call = `${op}(${name})`, key = "";
    if (op === "split") {
      [result, call, key] = [`${name}_0, ${name}_1 = `, `split(${name}, factors=[None, ${factor}])`, `${name} ${factor}`];
      order.splice(at, 1, `${name}_0`, `${name}_1`);
    } else if (op === "fuse") {
      [result, call, key] = [`${name}_${inner}_fused = `, `fuse(${name}, ${inner})`, `${name} ${inner}`];
      order.splice(at, 2, `${name}_${inner}_fused`);
    } else if (op === "reorder") {
      call = `reorder(${inner}, ${name})`;
      order.splice(at, 2, inner, name);
    } else if (op === "innermost") {
      call = `reorder(${[...order.slice(at + 1), name].join(", ")})`;
      order.push(...order.splice(at, 1));
    } else kinds[name] = KINDS[op];
    const found = { name, call, code: `${result}sch.${call}` };
    if (key && !now.steps.has(key)) return { ...found, what: "far" };
    if (KINDS[op] && now.refused.has(name)) return { ...found, what: "refused" };
    if (KINDS[op] && now.loops[at].kind === KINDS[op]) return { ...found, what: "already" };
    const to = key ? now.steps.get(key) : now.number;
    return { ...found, what: "done", state: state(to, order, kinds) };
  }

  function script({ loops, lines }) {
    const found = [...program.head];
    let deep = 1;
    const put = (line) => found.push("    ".repeat(deep) + line);
    for (let at = 0; at < loops.length; deep++) {
      let end = at + 1;
      if (loops[at].kind === "serial") while (end < loops.length && loops[end].kind === "serial") end++;
      const [names, extents] = ["name", "extent"].map((key) => loops.slice(at, end).map((loop) => loop[key]).join(", "));
      put(`for ${names} in ${loops[at].kind === "serial" ? end - at > 1 ? "T.grid" : "range" : `T.${loops[at].kind}`}(${extents}):`);
      at = end;
    }
    put(`with T.sblock("${program.block}"):`);
    deep++;
    [...lines, ...program.body].forEach(put);
    return found.join("\n");
  }

  // a formula of TVM over loops, as a function of their values: + - * // % < and, parentheses
  function formula(text, places) {
    const words = text.match(/\w+|\/\/|[-+*%<()]/g);
    const levels = [{ and: (a, b) => a && b }, { "<": (a, b) => a < b }, { "+": (a, b) => a + b, "-": (a, b) => a - b },
      { "*": (a, b) => a * b, "//": (a, b) => Math.floor(a / b), "%": (a, b) => a - b * Math.floor(a / b) }];
    const level = (n) => {
      if (n === levels.length) {
        const word = words.shift();
        if (word === "(") { const inside = level(0); words.shift(); return inside; }
        return /^\d/.test(word) ? () => Number(word) : ((place) => (values) => values[place])(places.get(word));
      }
      let left = level(n + 1);
      while (words[0] in levels[n]) {
        const does = levels[n][words.shift()], a = left, b = level(n + 1);
        left = (values) => does(a(values), b(values));
      }
      return left;
    };
    return level(0);
  }

  // the moments at which each element of the drawn memory is visited, and the last moment of all
  function visits({ loops, lines }) {
    const places = new Map(loops.map((loop, at) => [loop.name, at])), axes = {};
    let runs = () => true;
    for (const line of lines) {
      const many = line.match(/^(.+) = T\.axis\.remap\("\w+", \[(.+)\]\)$/), one = line.match(/^(\w+) = T\.axis\.\w+\(\d+, (.+)\)$/);
      if (many) many[1].split(", ").forEach((axis, at) => { axes[axis] = formula(many[2].split(", ")[at], places); });
      else if (one) axes[one[1]] = formula(one[2], places);
      else runs = formula(line.match(/^T\.where\((.+)\)$/)[1], places);
    }
    const when = Array.from({ length: program.shape.reduce((a, b) => a * b) }, () => new Set());
    const index = program.axes.map((axis) => axes[axis]), values = loops.map(() => 0);
    for (let at = loops.length; at >= 0;) {
      if (runs(values)) {
        const moment = loops.reduce((sum, loop, n) => loop.kind === "serial" ? sum * loop.extent + values[n] : sum, 0);
        when[index.reduce((sum, axis, n) => sum * program.shape[n] + axis(values), 0)].add(moment);
      }
      for (at = loops.length - 1; at >= 0 && ++values[at] === loops[at].extent; at--) values[at] = 0;
    }
    const moments = when.map((found) => [...found].sort((a, b) => a - b));
    return { moments, last: Math.max(...moments.map((found) => found.at(-1))) };
  }

  // the two loops, outer first, for which TVM accepts the schedule, but not the build
  const nested = ({ loops }, kind) => {
    const found = loops.filter((loop) => loop.kind === kind && loop.extent > 1);
    return found.length > 1 ? found.slice(0, 2).map((loop) => loop.name) : null;
  };
  return { start, choices, choose, script, visits, nested };
};
