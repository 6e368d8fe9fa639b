"use strict";
// the parts of the page that need no page: tests run them in Node
const Garment = {
  // base64 to bytes
  bytes: (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)),
  // a step for each 32 neighbours, float32, and after all of these their int8, to float32
  floats(bytes) {
    const groups = Math.ceil(bytes.length / 36), steps = new Float32Array(bytes.buffer, 0, groups);
    return Float32Array.from(new Int8Array(bytes.buffer, 4 * groups), (whole, at) => whole * steps[at >> 5]);
  },
  async model(wasm, weights) {
    const x = (await WebAssembly.instantiate(wasm, {})).instance.exports;
    if (x.numbers() !== weights.length) throw new Error("not the numbers of this model");
    const at = (place, count) => new Float32Array(x.memory.buffer, place, count);
    at(x.weights_at(), weights.length).set(weights);
    return (image) => {
      at(x.image_at(), 784).set(image);
      if (x.run()) throw new Error("the kernel refuses");
      return at(x.probabilities_at(), 10).slice();
    };
  },
  // fill what lines enclose: of size x size numbers, 0 where nothing is drawn
  filled(drawn, size) {
    const outside = new Uint8Array(size * size), todo = [];
    const look = (x, y) => {
      const at = y * size + x;
      if (x < 0 || y < 0 || x >= size || y >= size || outside[at] || drawn[at]) return;
      outside[at] = 1; todo.push([x, y]);
    };
    for (let i = 0; i < size; ++i) { look(i, 0); look(i, size - 1); look(0, i); look(size - 1, i); }
    while (todo.length) { const [x, y] = todo.pop(); look(x + 1, y); look(x - 1, y); look(x, y + 1); look(x, y - 1); }
    return outside.map((free) => 1 - free);
  },
  // a drawing as Fashion-MNIST has them: 28 x 28, the garment in the middle, its longer side 28 long
  image(drawn, size) {
    let [left, top, right, bottom] = [size, size, -1, -1];
    drawn.forEach((value, at) => {
      if (!value) return;
      const x = at % size, y = Math.floor(at / size);
      [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
    });
    const found = new Float32Array(784);
    if (right < 0) return found;
    const step = Math.max(right - left + 1, bottom - top + 1) / 28, parts = 4;
    const x0 = (left + right + 1 - 28 * step) / 2, y0 = (top + bottom + 1 - 28 * step) / 2;
    for (let i = 0; i < 784 * parts * parts; ++i) { // the mean of 16 places in each of 784 squares
      const at = Math.floor(i / parts / parts), sub = i % (parts * parts);
      const x = Math.floor(x0 + step * (at % 28 + (sub % parts + .5) / parts));
      const y = Math.floor(y0 + step * (Math.floor(at / 28) + (Math.floor(sub / parts) + .5) / parts));
      if (x >= 0 && y >= 0 && x < size && y < size && drawn[y * size + x]) found[at] += .75 / parts / parts;
    }
    return found;
  },
};

if (typeof document !== "undefined") (() => {
  const SIZE = 280, TIMES = 20, root = document.querySelector(".garment");
  const data = JSON.parse(document.querySelector(".garment-data").textContent);
  let language = data.language ?? (location.hash === "#zh" ? 1 : data.start), model = null, image = null, chosen = -1;
  const say = (key, values = {}) => data.strings[key][language].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const make = (tag, props = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(props)) name in node ? node[name] = value : node.setAttribute(name, value);
    node.append(...children); return node;
  };
  const names = () => data.strings.classes[language], percent = (p) => `${(100 * p).toFixed(1)}${language ? "" : " "}%`;
  const most = (values) => values.indexOf(Math.max(...values));
  const paint = (canvas, values) => {
    const context = canvas.getContext("2d"), pixels = context.createImageData(28, 28);
    values.forEach((value, at) => pixels.data.set([255 * value, 255 * value, 255 * value, 255], 4 * at));
    context.putImageData(pixels, 0, 0);
  };
  const images = data.images.map((text) => Float32Array.from(Garment.bytes(text), (value) => value / 255));
  const paper = make("canvas", { className: "paper", width: SIZE, height: SIZE, role: "img" });
  const seen = make("canvas", { className: "seen", width: 28, height: 28, role: "img" });
  const said = make("p", { className: "said", role: "status" }), bars = make("tbody");
  const loading = make("progress", { max: data.parts, value: 0 }), state = make("p", { role: "status" });
  const pen = paper.getContext("2d", { willReadFrequently: true });
  const brush = make("input", { type: "range", min: 6, max: 48, value: 14 });

  function answer() {
    paint(seen, image ?? new Float32Array(784));
    bars.replaceChildren();
    const drawn = image && image.some((value) => value > 0);
    let probabilities = null, time = 0;
    if (model && drawn) {
      const start = performance.now();
      for (let i = 0; i < TIMES; ++i) probabilities = model(image);
      time = 1000 * (performance.now() - start) / TIMES;
    }
    const theirs = chosen < 0 ? null : data.said[chosen], best = probabilities && most(probabilities);
    names().forEach((name, at) => {
      const bar = make("span", { className: "track" }, make("span"));
      if (probabilities) bar.firstChild.style.width = `${100 * probabilities[at]}%`;
      bars.append(make("tr", { className: at === best ? "best" : "" }, make("th", { scope: "row" }, name), make("td", {}, bar),
        make("td", { className: "number" }, probabilities ? percent(probabilities[at]) : ""), make("td", { className: "number" }, theirs ? percent(theirs[at]) : "")));
    });
    if (!drawn) said.textContent = say("nothing");
    else if (probabilities) {
      said.textContent = say("said", { name: names()[best], percent: percent(probabilities[best]), time: time.toFixed(0), times: TIMES });
      if (theirs) said.textContent += " " + say("same", { name: names()[most(theirs)], percent: percent(Math.max(...theirs)),
        difference: Math.max(...theirs.map((p, at) => Math.abs(p - probabilities[at]))).toPrecision(1) });
    }
  }
  const marks = () => Uint8Array.from({ length: SIZE * SIZE }, (_, at) => pixels[4 * at] > 127 ? 1 : 0);
  let pixels = pen.getImageData(0, 0, SIZE, SIZE).data, last = null;
  const unchoose = () => { chosen = -1; for (const one of root.querySelectorAll(".image input")) one.checked = false; };
  function take(finished) {
    pixels = pen.getImageData(0, 0, SIZE, SIZE).data;
    let drawn = marks();
    if (finished) { // what an outline encloses is part of the garment
      drawn = Garment.filled(drawn, SIZE);
      const full = pen.createImageData(SIZE, SIZE);
      drawn.forEach((value, at) => full.data.set([210 * value, 210 * value, 210 * value, 255], 4 * at));
      pen.putImageData(full, 0, 0);
    }
    image = Garment.image(drawn, SIZE); answer();
  }
  const place = (event) => {
    const box = paper.getBoundingClientRect();
    return [(event.clientX - box.left) * SIZE / box.width, (event.clientY - box.top) * SIZE / box.height];
  };
  const line = (from, to) => {
    pen.strokeStyle = "#d2d2d2"; pen.lineWidth = +brush.value; pen.lineCap = pen.lineJoin = "round";
    pen.beginPath(); pen.moveTo(...from); pen.lineTo(...to); pen.stroke();
  };
  const clear = () => { pen.fillStyle = "#000"; pen.fillRect(0, 0, SIZE, SIZE); };
  paper.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    paper.setPointerCapture(event.pointerId);
    if (chosen >= 0) clear();
    unchoose(); last = place(event); line(last, last); take(false);
  });
  paper.addEventListener("pointermove", (event) => {
    if (!last) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) { const now = place(each); line(last, now); last = now; }
    take(false);
  });
  for (const name of ["pointerup", "pointercancel"]) paper.addEventListener(name, () => { if (last) { last = null; take(true); } });
  const choose = (number) => {
    chosen = number; image = images[number]; clear();
    const small = make("canvas", { width: 28, height: 28 }); paint(small, image);
    pen.imageSmoothingEnabled = false; pen.drawImage(small, 0, 0, SIZE, SIZE); answer();
  };

  function page() {
    root.setAttribute("aria-label", say("title"));
    if (data.language === undefined) document.documentElement.lang = language ? "zh" : "en";
    paper.setAttribute("aria-label", say("canvas")); seen.setAttribute("aria-label", say("seen"));
    loading.setAttribute("aria-label", say("loading"));
    const other = make("button", { type: "button", lang: language ? "en" : "zh", onclick: () => { language = 1 - language; page(); } }, say("other"));
    const top = data.language === undefined ? [make("h1", {}, say("title")), other] : [];
    const choices = images.map((values, number) => {
      const small = make("canvas", { width: 28, height: 28 }); paint(small, values);
      const label = say("image", { number, label: names()[data.labels[number]] });
      const input = make("input", { type: "radio", name: "garment", "aria-label": label, title: label, checked: number === chosen, onchange: () => choose(number) });
      return make("label", { className: "image" }, input, small);
    });
    const left = make("div", {}, paper, said,
      make("div", { className: "controls" }, make("button", { type: "button", onclick: () => { clear(); unchoose(); image = null; answer(); } }, say("clear")),
        make("label", {}, say("brush"), " ", brush)),
      make("p", { className: "pair" }, seen, say("seen")), make("p", {}, say("hint")),
      make("fieldset", {}, make("legend", {}, say("images")), make("div", { className: "images" }, ...choices)));
    const heads = ["class", "answers", "here", "pytorch"].map((key) => make("th", { scope: "col", className: key === "here" || key === "pytorch" ? "number" : "" }, say(key)));
    const right = make("div", {}, make("h2", {}, say("answers")), make("table", {}, make("thead", {}, make("tr", {}, ...heads)), bars));
    root.replaceChildren(...top, make("p", {}, say("intro", { bytes: data.bytes.toLocaleString("en") })),
      ...data.real ? [] : [make("p", { className: "note" }, say("standin"))], state, make("div", { className: "sides" }, left, right));
    progress(); answer();
  }
  let told = ["loading"];
  const progress = () => state.replaceChildren(say(...told), ...told[0] === "loading" ? [" ", loading] : []);
  followTheme(root);
  clear(); page();
  // the weights come in parts, by scripts: these load from a file too, and one sees how far it is
  window.garmentParts = [];
  const part = (number) => new Promise((done, fail) => {
    if (data.weights) { window.garmentParts[number] = data.weights[number]; return done(); }
    document.head.append(make("script", { src: `${data.folder}${number}.js`, onload: done, onerror: fail }));
  });
  (async () => {
    for (let number = 0; number < data.parts; ++number) { await part(number); loading.value = number + 1; }
    const packed = window.garmentParts.map(Garment.bytes), all = new Uint8Array(packed.reduce((sum, one) => sum + one.length, 0));
    packed.reduce((at, one) => { all.set(one, at); return at + one.length; }, 0);
    const weights = Garment.floats(all);
    model = await Garment.model(Garment.bytes(data.wasm), weights);
    told = ["loaded", { numbers: weights.length.toLocaleString("en") }]; progress(); answer();
  })().catch(() => { told = ["failed"]; progress(); });
})();
if (typeof module !== "undefined") module.exports = Garment;
