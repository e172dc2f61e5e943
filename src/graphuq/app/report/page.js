// The numbers in #data in; plots, pictures, hovering and sorting out. Text is only ever set as text.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const nodes = data.nodes;
  const byNode = new Map(nodes.map((node) => [node.node, node]));
  const SVG = "http://www.w3.org/2000/svg";
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const least = 1 / data.classes.length; // the least probability that the likeliest class can have
  const percent = (x) => (100 * x).toFixed(1) + "%";
  const sure = (p) => ({ "100.0%": "> 99.9%", "0.0%": "< 0.1%" })[percent(p)] ?? percent(p); // nobody can tell more

  // ---- small helpers -----------------------------------------------------------------------------
  function element(name, attributes = {}, parent = null, text = null) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }
  function svg(name, attributes, parent, text = null) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }
  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
    const found = [];
    for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * step; x += step) found.push(Number(x.toPrecision(6)));
    return found;
  }
  // An empty plot with axes; returns the drawing and the two scales.
  function axes(host, label, { x, y, width = 420, height = 240, left = 44, bottom = 36, xLabel = "", yLabel = "", n = 5 }) {
    host.replaceChildren();
    const [right, top] = [10, 10];
    const root = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, host);
    const X = (v) => left + ((v - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
    const Y = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0] || 1)) * (height - bottom - top);
    for (const t of ticks(y[0], y[1], 4)) {
      svg("line", { class: "grid", x1: left, x2: width - right, y1: Y(t), y2: Y(t) }, root);
      if (left > 20) svg("text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, root, String(t));
    }
    for (const t of n ? ticks(x[0], x[1], n) : []) svg("text", { x: X(t), y: height - bottom + 15, "text-anchor": "middle" }, root, String(t));
    svg("line", { class: "axis", x1: left, x2: width - right, y1: Y(y[0]), y2: Y(y[0]) }, root);
    if (xLabel) svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, root, xLabel);
    if (yLabel) svg("text", { transform: `translate(11 ${(height - bottom + top) / 2}) rotate(-90)`, "text-anchor": "middle" }, root, yLabel);
    return { root, X, Y };
  }
  function bar(root, X, Y, x0, x1, y0, y1, fill, title) {
    const gap = Math.min(1, (X(x1) - X(x0)) / 8);
    const made = svg("rect", { x: X(x0) + gap, width: Math.max(0.5, X(x1) - X(x0) - 2 * gap), y: Y(y1), height: Math.max(0, Y(y0) - Y(y1)), fill, rx: 1 }, root);
    if (title) svg("title", {}, made, title);
    return made;
  }
  function mix(a, b, t) {
    const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const [p, q] = [parse(a), parse(b)];
    return `rgb(${p.map((v, i) => Math.round(v + (q[i] - v) * t)).join(" ")})`;
  }

  // ---- pictures ----------------------------------------------------------------------------------
  const pictures = data.pictures && (() => {
    const gray = Uint8Array.from(atob(data.pictures.gray), (c) => c.charCodeAt(0));
    const place = new Map(data.pictures.nodes.map((node, k) => [node, k]));
    const { height, width } = data.pictures;
    return {
      has: (node) => place.has(node),
      draw(canvas, node) {
        if (!place.has(node)) return;
        canvas.width = width; canvas.height = height;
        const context = canvas.getContext("2d"), image = context.createImageData(width, height);
        const start = place.get(node) * width * height;
        for (let i = 0; i < width * height; i++) image.data.set([gray[start + i], gray[start + i], gray[start + i], 255], 4 * i);
        context.putImageData(image, 0, 0);
      },
    };
  })();
  if (pictures) for (const canvas of document.querySelectorAll("canvas.picture")) pictures.draw(canvas, Number(canvas.dataset.node));

  // ---- what the pointer shows --------------------------------------------------------------------
  const tip = document.getElementById("tip");
  function showTip(node, x, y) {
    tip.replaceChildren();
    element("b", {}, tip, node.name);
    const name = (text) => element("bdi", {}, null, text); // which turns nothing that follows round
    const line = (...parts) => { const made = element("div", {}, tip); made.append(...parts); return made; };
    const error = node.error === null ? "" : ` (error ${node.error.toFixed(4)})`;
    line(name(data.classes[node.class]), `, probability ${sure(node.confidence)}${error}`);
    if (data.classes.length > 2) for (const [k, p] of node.p.slice(1, 3)) line("or ", name(data.classes[k]), `, ${sure(p)}`);
    if (node.label >= 0) line("labeled ", name(data.classes[node.label]));
    if (node.truth >= 0) line("in truth ", name(data.classes[node.truth])).classList.toggle("wrong", node.truth !== node.class);
    if (pictures && pictures.has(node.node)) pictures.draw(element("canvas", { class: "picture" }, tip), node.node);
    else if (node.cells.length) {
      const list = element("dl", {}, tip);
      node.cells.forEach((cell, k) => { element("dt", {}, list, data.columns[k]); element("dd", {}, list, cell); });
    }
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 16, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(8, y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16) + "px";
  }
  const hideTip = () => { tip.style.display = "none"; };
  addEventListener("scroll", hideTip, { passive: true });
  for (const row of document.querySelectorAll("tr[data-node], figure[data-node]")) {
    const node = byNode.get(Number(row.dataset.node));
    if (!node) continue;
    row.addEventListener("pointermove", (event) => showTip(node, event.clientX, event.clientY));
    row.addEventListener("pointerleave", hideTip);
  }

  // ---- the map -----------------------------------------------------------------------------------
  const map = document.querySelector("canvas.map");
  const pick = [document.getElementById("axis-x"), document.getElementById("axis-y")];
  const shapes = data.shapes.map((path) => new Path2D(path));
  let dots = [], alone = null; // the class that is shown alone
  function star(points) {
    const path = new Path2D();
    for (let k = 0; k < 2 * points; k++) {
      const r = k % 2 ? 0.4 : 1, angle = (Math.PI * k) / points;
      path.lineTo(r * Math.sin(angle), -r * Math.cos(angle));
    }
    path.closePath();
    return path;
  }
  const stars = [4, 5, 6, 7, 8].map(star);
  function drawMap() {
    const { width, height } = map.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    map.width = width * ratio; map.height = height * ratio;
    const context = map.getContext("2d");
    context.scale(ratio, ratio);
    const chosen = pick.map((select) => data.embedding.coordinates[Number(select.value)]);
    const pad = 18;
    const scale = chosen.map((values, k) => {
      const low = Math.min(...values), high = Math.max(...values), room = (k ? height : width) - 2 * pad;
      return (v) => (k ? height - pad - ((v - low) / (high - low || 1)) * room : pad + ((v - low) / (high - low || 1)) * room);
    });
    const [middle, text, card] = ["middle", "text", "card"].map(color), colors = data.classes.map((_, k) => color("k" + k));
    dots = nodes.map((node, i) => ({ node, x: scale[0](chosen[0][i]), y: scale[1](chosen[1][i]) }));
    // The unsure are drawn after the sure, the labeled last.
    const order = [...dots].sort((a, b) => (a.node.label >= 0) - (b.node.label >= 0) || b.node.confidence - a.node.confidence);
    const size = nodes.length > 1500 ? 2.7 : 3.7, large = width < 500 || nodes.filter((node) => node.label >= 0).length > 60 ? 8 : 11;
    for (const { node, x, y } of order) {
      const given = node.label >= 0, k = given ? node.label : node.class, reach = given ? large : size;
      const sureness = given ? 1 : Math.max(0, (node.confidence - least) / (1 - least));
      const path = given ? stars[k % stars.length] : shapes[k % shapes.length];
      const seen = alone === null || alone === k;
      context.save();
      context.translate(x, y);
      context.scale(reach, reach);
      context.globalAlpha = seen ? 1 : 0.08;
      context.fillStyle = mix(middle, colors[k], sureness);
      context.fill(path);
      context.lineWidth = (given ? 1.6 : 0.6) / reach;
      context.strokeStyle = given || sureness < 0.4 ? text : card;
      context.globalAlpha *= given ? 1 : 0.7;
      context.stroke(path);
      context.restore();
    }
  }
  function nearest(event) {
    const box = map.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = null, least = 15 ** 2;
    for (const dot of dots) {
      const distance = (dot.x - x) ** 2 + (dot.y - y) ** 2 - (dot.node.label >= 0 ? 40 : 0);
      if (distance < least) [best, least] = [dot, distance];
    }
    return best;
  }
  for (const kind of ["pointermove", "pointerdown"]) {
    map.addEventListener(kind, (event) => {
      const dot = nearest(event);
      if (dot) showTip(dot.node, event.clientX, event.clientY); else hideTip();
    });
  }
  map.addEventListener("pointerleave", hideTip);
  pick.forEach((select) => select.addEventListener("change", drawMap));
  const legend = [...document.querySelectorAll("button.legend")];
  for (const button of legend) {
    button.addEventListener("click", () => {
      const k = Number(button.dataset.class);
      alone = alone === k ? null : k;
      for (const other of legend) other.setAttribute("aria-pressed", String(alone === Number(other.dataset.class)));
      drawMap();
    });
  }

  // ---- plots -------------------------------------------------------------------------------------
  function drawConfidence(host) {
    const { edges, counts } = data.confidence, base = edges.slice(0, -1).map(() => 0);
    const most = Math.max(1, ...base.map((_, i) => counts.reduce((sum, each) => sum + each[i], 0)));
    const { root, X, Y } = axes(host, "Distribution of confidence", { x: [least, 1], y: [0, most], xLabel: "probability of the likeliest class", yLabel: "rows" });
    counts.forEach((each, k) => each.forEach((n, i) => {
      if (!n) return;
      bar(root, X, Y, edges[i], edges[i + 1], base[i], base[i] + n, color("k" + k), `${percent(edges[i])} to ${percent(edges[i + 1])}: ${n} of class ${data.classes[k]}`);
      base[i] += n;
    }));
  }
  function drawMarginal(host, marginal) {
    const { edges, counts } = marginal, most = Math.max(...counts);
    const { root, X, Y } = axes(host, "Histogram of draws", { x: [edges[0], edges.at(-1)], y: [0, most], width: 170, height: 96, left: 4, bottom: 20, n: 3 });
    edges.slice(0, -1).forEach((edge, i) => bar(root, X, Y, edge, edges[i + 1], 0, counts[i], color((edge + edges[i + 1]) / 2 >= 0 ? "k1" : "k0")));
    svg("line", { x1: X(0), x2: X(0), y1: 6, y2: Y(0), stroke: color("text"), "stroke-dasharray": "2 3" }, root);
  }
  function drawTrace(host, trace) {
    const all = trace.chains.flat(), draw = (i) => 1 + i * trace.step, n = trace.chains[0].length;
    const { root, X, Y } = axes(host, "Trace of the chains", { x: [1, Math.max(2, draw(n - 1))], y: [Math.min(...all), Math.max(...all)], height: 190, xLabel: "draw", yLabel: "u" });
    trace.chains.forEach((chain, k) => {
      const points = chain.map((v, i) => `${X(draw(i)).toFixed(1)},${Y(v).toFixed(1)}`).join(" ");
      const line = svg("polyline", { points, fill: "none", stroke: color("k" + (k % 8)), "stroke-width": 1, opacity: 0.85 }, root);
      svg("title", {}, line, `chain ${k + 1}`);
    });
  }
  function drawReliability(host) {
    const found = data.reliability, low = Math.min(least, ...found.frequency.map((f) => Math.floor(10 * f) / 10));
    const { root, X, Y } = axes(host, "Share right against confidence", { x: [least, 1], y: [low, 1], xLabel: "probability of the likeliest class", yLabel: "share right" });
    found.frequency.forEach((f, i) => bar(root, X, Y, found.left[i], found.right[i], low, f, mix(color("card"), color("quiet"), 0.3), `${found.counts[i]} rows, ${percent(f)} right`));
    svg("line", { x1: X(least), y1: Y(least), x2: X(1), y2: Y(1), stroke: color("text"), "stroke-dasharray": "4 4" }, root);
    found.confidence.forEach((c, i) => {
      const n = found.counts[i], error = 2 * Math.sqrt((c * (1 - c)) / n), f = found.frequency[i];
      svg("line", { x1: X(c), x2: X(c), y1: Y(Math.min(1, c + error)), y2: Y(Math.max(low, c - error)), stroke: color("quiet"), "stroke-width": 2 }, root);
      svg("circle", { cx: X(c), cy: Y(f), r: 4.5, fill: color("text"), stroke: color("card") }, root);
    });
  }
  function drawSpectrum(host) {
    const values = data.spectrum;
    const { root, X, Y } = axes(host, "Eigenvalues of the graph", { x: [0, values.length - 1 || 1], y: [0, Math.max(...values, 1e-9)], height: 200, xLabel: "j", yLabel: "eigenvalue" });
    values.forEach((v, j) => svg("circle", { cx: X(j), cy: Y(v), r: 1.6, fill: color("accent") }, root));
  }
  function drawAll() {
    drawMap();
    const at = (id) => document.getElementById(id);
    drawConfidence(at("confidence"));
    document.querySelectorAll("[data-marginal]").forEach((host) => drawMarginal(host, data.marginals[Number(host.dataset.marginal)]));
    document.querySelectorAll("[data-trace]").forEach((host) => drawTrace(host, data.traces[Number(host.dataset.trace)]));
    if (data.reliability) drawReliability(at("reliability"));
    drawSpectrum(at("spectrum"));
  }

  // ---- sorting -----------------------------------------------------------------------------------
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), body = head.closest("table").tBodies[0];
      const upward = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", upward ? "ascending" : "descending");
      const numeric = head.classList.contains("number");
      const key = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
      const compare = (a, b) => (numeric ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b), undefined, { numeric: true }));
      body.append(...[...body.rows].sort((a, b) => (upward ? 1 : -1) * compare(a, b)));
    });
  }

  // ---- light and dark ----------------------------------------------------------------------------
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function theme(name) { document.documentElement.dataset.theme = name; drawAll(); }
  document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  theme(dark.matches ? "dark" : "light");
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(drawMap); });
})();
