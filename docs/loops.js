// What the primitives of a schedule do to the loops of one block, as TVM does it. The page in
// live.html works with this; tests/test_live.py compares it with TVM, step by step, and so does the page itself.
//
// The value of a block's axis is a sum of terms. A term is a piece of a mark, times `scale`: what
// is left after dividing by `lower`, modulo `extent`. A mark is a loop, or a sum seen as one number.
// TVM brings every value into such a form (IterMapSimplify), and so what it prints can be told.
const Loops = (() => {
  const WIDE = 100; // as in listing.py
  const key = (mark) => mark.name ?? `(${mark.terms.map((term) =>
    `${key(term.mark)}/${term.lower}%${term.extent}*${term.scale}`).join("+")})`;
  const whole = (mark) => ({ mark, lower: 1, extent: mark.extent, scale: 1 });
  const isWhole = (term) => term.lower === 1 && term.extent === term.mark.extent;

  /** Bring terms into order, and join neighbouring pieces of one mark: x // 4 * 4 + x % 4 is x. */
  function joined(terms) {
    const found = [...terms].sort((a, b) => b.scale - a.scale);
    for (let n = 0; n + 1 < found.length;) {
      const [outer, inner] = found.slice(n, n + 2);
      const meet = key(outer.mark) === key(inner.mark) && outer.lower === inner.lower * inner.extent
        && outer.scale === inner.scale * inner.extent;
      if (meet) found.splice(n, 2, { ...inner, extent: outer.extent * inner.extent });
      n = meet ? Math.max(0, n - 1) : n + 1;
    }
    return found;
  }

  /** Return a sum as one term, of the mark that it is where it has several. */
  function single(terms) {
    const found = joined(terms);
    if (found.length === 1) return found[0];
    return whole({ terms: found, extent: found.reduce((n, term) => n * term.extent, 1) });
  }

  /** Put a sum in the place of each loop that `given` knows. */
  function put(terms, given) {
    return joined(terms.flatMap((term) => {
      const { mark, lower, extent, scale } = term;
      const inside = mark.name ? given[mark.name] ?? [whole(mark)] : put(mark.terms, given);
      if (isWhole(term)) return inside.map((piece) => ({ ...piece, scale: piece.scale * scale }));
      if (!inside.length) return [];
      const one = single(inside);
      return [{ mark: one.mark, lower: one.lower * lower, extent, scale }];
    }));
  }

  const uses = (terms, name) => terms.some(({ mark }) =>
    mark.name ? mark.name === name : uses(mark.terms, name));
  const changed = (state, loops, given = {}) => ({ loops, axes: state.axes.map((axis) =>
    ({ ...axis, value: put(axis.value, given) })) });

  /** The program as TVM is given it: each axis has a loop of its own. */
  const first = (program) => ({
    loops: program.axes.map(([name, extent]) => ({ name, extent, kind: "serial" })),
    axes: program.axes.map(([name, extent, kind]) => ({ name: `v_${name}`, extent, kind,
      value: [whole({ name, extent })] })) });

  const KINDS = { vectorize: "vectorized", parallel: "parallel", unroll: "unrolled" };

  /** Return the state after a step [primitive, loop, factor or other loop], or why it is refused. */
  function apply(state, [op, at, other]) {
    const { loops, axes } = state, { name, extent } = loops[at];
    const replaced = (count, ...by) => loops.toSpliced(at, count, ...by);
    if (op === "split") {
      const parts = [extent / other, other].map((n, part) =>
        ({ name: `${name}_${part}`, extent: n, kind: "serial" }));
      const [outer, inner] = parts.map(whole);
      return { state: changed(state, replaced(1, ...parts),
        { [name]: [{ ...outer, scale: other }, inner] }) };
    }
    if (op === "fuse") {
      const inner = loops[other];
      if (other !== at + 1) {
        const why = other > at ? "between" : "outwards";
        return { refused: "fuse", why, outer: name, inner: inner.name, between: loops[at + 1]?.name };
      }
      const mark = { name: `${name}_${inner.name}_fused`, extent: extent * inner.extent };
      const piece = (lower, n) => n === 1 ? [] : [{ mark, lower, extent: n, scale: 1 }];
      return { state: changed(state, replaced(2, { ...mark, kind: "serial" }),
        { [name]: piece(inner.extent, extent), [inner.name]: piece(1, inner.extent) }) };
    }
    if (op === "reorder") {
      return { state: { axes, loops: loops.with(at, loops[other]).with(other, loops[at]) } };
    }
    const sums = axes.find(({ kind, value }) => kind === "R" && uses(value, name));
    if (op !== "unroll" && sums) return { refused: op, why: "reduction", loop: name, axis: sums.name };
    return { state: { axes, loops: loops.with(at, { ...loops[at], kind: KINDS[op] }) } };
  }

  /** Return what is offered at a loop, also what is refused. */
  function choices({ loops }, at) {
    const { extent } = loops[at], last = loops.length - 1, inside = at < last;
    const factors = [2, 3, 4, 6, 8, 16, 32].filter((n) => n < extent && extent % n === 0);
    const near = inside ? [at + 1] : at ? [at - 1] : [];
    return [...factors.map((n) => ["split", at, n]),
      ...near.map((n) => ["reorder", at, n]),
      ...[...near, ...(at + 1 < last ? [at + 2] : [])].map((n) => ["fuse", at, n]),
      ...Object.keys(KINDS).map((op) => [op, at, 0])];
  }

  /** Write a step as Python; `sch` is the schedule's name. */
  function call({ loops }, [op, at, other], sch = "") {
    const name = loops[at].name, second = loops[other]?.name;
    if (op === "split") {
      return `${sch && `${name}_0, ${name}_1 = ${sch}`}split(${name}, factors=[None, ${other}])`;
    }
    if (op === "fuse") return `${sch && `${name}_${second}_fused = ${sch}`}fuse(${name}, ${second})`;
    if (op === "reorder") return `${sch}reorder(${at < other ? `${second}, ${name}` : `${name}, ${second}`})`;
    return `${sch}${op}(${name})`;
  }

  const sum = (terms) => terms.map(written).join(" + ") || "0";
  function written(term) {
    const { mark, lower, extent, scale } = term;
    const times = scale === 1 ? "" : ` * ${scale}`;
    let inside = mark.name ?? sum(mark.terms);
    if (isWhole(term)) return mark.name ? inside + times : `(${inside})${times}`;
    if (!mark.name) inside = `(${inside})`;
    const modulo = lower * extent === mark.extent ? "" : ` % ${lower * extent}`;
    return `${inside}${modulo}${lower === 1 ? "" : ` // ${lower}`}${times}`;
  }

  /** Break a line that is too wide, as listing.py does. */
  function wrapped(line) {
    if (line.length <= WIDE) return [line];
    let depth = 0, start = 0, widest = [0, 0];
    const commas = [];
    for (let place = 0; place < line.length; place++) {
      const letter = line[place];
      depth += "([{".includes(letter) - ")]}".includes(letter);
      if (depth === 1 && "([{".includes(letter)) start = place + 1;
      else if (depth === 0 && ")]}".includes(letter)) {
        if (place - start > widest[1] - widest[0]) widest = [start, place];
      } else if (depth === 1 && letter === "," && line[place + 1] === " ") commas.push(place + 2);
    }
    const cuts = commas.filter((cut) => widest[0] < cut && cut < widest[1]);
    if (!cuts.length) return [line];
    const edges = [0, ...cuts, line.length], rows = [""];
    for (let n = 0; n + 1 < edges.length; n++) {
      const piece = line.slice(edges[n], edges[n + 1]);
      if (edges[n] && (rows.at(-1) + piece.trimEnd()).length > WIDE) rows.push(" ".repeat(widest[0]));
      rows[rows.length - 1] += piece;
    }
    return rows.map((row) => row.trimEnd());
  }

  /** Return a state as TVMScript. `head` and `body` of a program are what no step changes. */
  function script(program, { loops, axes }) {
    const lines = [...program.head];
    let indent = 4;
    const line = (text) => lines.push(...wrapped(" ".repeat(indent) + text));
    for (let n = 0; n < loops.length; indent += 4) {
      const { name, extent, kind } = loops[n];
      let end = n + 1;
      while (kind === "serial" && loops[end]?.kind === "serial") end++;
      const run = loops.slice(n, end);
      if (kind !== "serial") line(`for ${name} in T.${{ unrolled: "unroll" }[kind] ?? kind}(${extent}):`);
      else if (run.length === 1) line(`for ${name} in range(${extent}):`);
      else line(`for ${run.map((loop) => loop.name).join(", ")} in T.grid(${run.map((loop) => loop.extent).join(", ")}):`);
      n = end;
    }
    line(`with T.sblock("${program.block}"):`);
    indent += 4;
    const plain = ({ value: [term, ...more] }) => !more.length && term?.mark.name && isWhole(term);
    for (let n = 0; n < axes.length;) {
      let end = n + 1;
      while (plain(axes[n]) && axes[end] && plain(axes[end])) end++;
      const run = axes.slice(n, end), values = run.map((axis) => sum(axis.value)).join(", ");
      if (run.length > 1) line(`${run.map((axis) => axis.name).join(", ")} = T.axis.remap("${run.map((axis) => axis.kind).join("")}", [${values}])`);
      else line(`${run[0].name} = T.axis.${run[0].kind === "S" ? "spatial" : "reduce"}(${run[0].extent}, ${values})`);
      n = end;
    }
    for (const text of program.body) line(text);
    return lines.join("\n");
  }

  const at = (terms, indices) => terms.reduce((total, { mark, lower, extent, scale }) => total + scale
    * (Math.floor((mark.name ? indices[mark.name] : at(mark.terms, indices)) / lower) % extent), 0);

  /** Return for each place of the drawing the moments at which it is visited, in their order.
   *  Lanes of a vector share a moment; so do the iterations of a parallel loop. */
  function visits(program, { loops, axes }) {
    const found = Array.from({ length: program.size }, () => []), indices = {};
    (function run(n, moment) {
      if (n === loops.length) {
        const values = axes.map((axis) => at(axis.value, indices));
        found[program.place.reduce((total, by, axis) => total + by * values[axis], 0)].push(moment);
        return;
      }
      const { name, extent, kind } = loops[n], together = kind === "parallel" || kind === "vectorized";
      for (let i = 0; i < extent; i++) {
        indices[name] = i;
        run(n + 1, together ? moment : moment * extent + i);
      }
    })(0, 0);
    for (const moments of found) moments.sort((a, b) => a - b);
    return found;
  }

  /** Return two loops, one inside the other, that the schedule takes and the build refuses: threads
   *  are given out once, and a vector has no vectors in it. A loop of one iteration is no loop. */
  function nested({ loops }) {
    for (const kind of ["parallel", "vectorized"]) {
      const found = loops.filter((loop) => loop.kind === kind && loop.extent > 1);
      if (found.length > 1) return { kind, outer: found[0].name, inner: found[1].name };
    }
    return null;
  }

  /** Return the steps as Python that can be pasted. */
  function code(program, path) {
    const lines = [...program.code];
    let state = first(program);
    for (const step of path) {
      lines.push(call(state, step, "sch."));
      ({ state } = apply(state, step));
    }
    return lines.join("\n");
  }

  /** The checksum CRC-32 of a text of ASCII, as zlib has it. */
  function checksum(text) {
    let left = -1;
    for (let n = 0; n < text.length; n++) {
      left ^= text.charCodeAt(n);
      for (let bit = 0; bit < 8; bit++) left = (left >>> 1) ^ (left & 1 ? 0xedb88320 : 0);
    }
    return ~left >>> 0;
  }

  /** Take the steps that TVM took (plots/walks.py), and count the answers that are the same. */
  function compared(program, messages) {
    let same = 0, steps = 0;
    for (const walk of program.walks) {
      let state = first(program);
      for (const [op, loop, other, answer] of walk) {
        const found = apply(state, [op, loop, other]);
        steps++;
        if (found.state) {
          ({ state } = found);
          const moments = visits(program, state).map((own) => own.join(",")).join(";");
          same += checksum(`${script(program, state)}\n${moments}`) === answer;
        } else same += answer === "" && found.refused in messages;
      }
    }
    return { same, steps };
  }

  /** Write what a page shows, for its address: `path` are the steps taken. */
  function address(program, path, moment) {
    const steps = path.map((step) => step.join("-")).join(".");
    return new URLSearchParams({ program: program.id, ...steps && { steps },
      ...moment && { moment } }).toString();
  }

  /** Read an address; of its steps those up to the first that is not offered, or is refused. */
  function addressed(programs, text) {
    const asked = new URLSearchParams(text);
    const number = Math.max(0, programs.findIndex(({ id }) => id === asked.get("program")));
    let state = first(programs[number]);
    const path = [];
    for (const said of (asked.get("steps") ?? "").split(".").filter(Boolean)) {
      const step = state.loops[said.split("-")[1]] && choices(state, Number(said.split("-")[1]))
        .find((one) => one.join("-") === said);
      const found = step && apply(state, step);
      if (!found?.state) break;
      path.push({ step, call: call(state, step), state: found.state });
      ({ state } = found);
    }
    return { number, path, moment: Math.max(0, parseInt(asked.get("moment"), 10) || 0) };
  }

  return { compared, first, apply, choices, call, script, visits, nested, code, address, addressed };
})();
if (typeof module !== "undefined") module.exports = Loops;
