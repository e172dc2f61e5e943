// The numbers in #data in; plots, pictures and hovering out. Text is only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const nodes = data.nodes;
  const byNode = new Map(nodes.map((node) => [node.node, node]));
  const least = 1 / data.classes.length; // the least probability that the likeliest class can have

  // ---- pictures ----------------------------------------------------------------------------------
  const pictures = data.pictures && (() => {
    const gray = bytes(data.pictures.gray);
    const place = new Map(data.pictures.nodes.map((node, k) => [node, k]));
    const { height, width } = data.pictures;
    return {
      has: (node) => place.has(node),
      draw(canvas, node) {
        if (place.has(node)) paint(canvas, gray, width, height, place.get(node) * width * height);
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
    placeTip(tip, x, y);
  }
  const hideTip = () => { tip.style.display = "none"; };
  addEventListener("scroll", hideTip, { passive: true });
  for (const row of document.querySelectorAll("tr[data-node]")) {
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
    const size = nodes.length > 1500 ? 2.7 : 3.7, crowd = nodes.filter((node) => node.label >= 0).length;
    const large = Math.max(1.3 * size, Math.min(11, 11 * Math.sqrt(40 / Math.max(crowd, 1))) * (width < 500 ? 0.7 : 1)); // many stars are small
    for (const { node, x, y } of order) {
      const given = node.label >= 0, k = given ? node.label : node.class, reach = given ? large : size;
      const sureness = given ? 1 : Math.max(0, (node.confidence - least) / (1 - least));
      const path = given ? stars[k % stars.length] : shapes[k % shapes.length];
      const seen = alone === null || alone === k;
      drawDot(context, {
        x, y, path, reach, fill: mix(middle, colors[k], sureness), alpha: seen ? 1 : 0.08,
        edge: given || sureness < 0.4 ? text : card, width: given ? Math.min(1.6, large / 6) : 0.6, edgeAlpha: given ? 1 : 0.7,
      });
    }
  }
  for (const kind of ["pointermove", "pointerdown"]) {
    map.addEventListener(kind, (event) => {
      const dot = nearestDot(map, dots, event, 15, (each) => (each.node.label >= 0 ? 40 : 0));
      if (dot) showTip(dot.node, event.clientX, event.clientY); else hideTip();
    });
  }
  map.addEventListener("pointerleave", hideTip);
  map.closest("details")?.addEventListener("toggle", drawMap); // what is folded has no size
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
    const found = data.reliability;
    const { root, X, Y } = axes(host, "Share right against confidence", { x: [least, 1], y: [0, 1], xLabel: "probability of the likeliest class", yLabel: "share right" });
    found.frequency.forEach((f, i) => bar(root, X, Y, found.left[i], found.right[i], 0, f, mix(color("card"), color("quiet"), 0.3), `${found.counts[i]} rows, ${percent(f)} right`));
    svg("line", { x1: X(least), y1: Y(least), x2: X(1), y2: Y(1), stroke: color("text"), "stroke-dasharray": "4 4" }, root);
    found.confidence.forEach((c, i) => {
      const n = found.counts[i], error = 2 * Math.sqrt((c * (1 - c)) / n), f = found.frequency[i];
      svg("line", { x1: X(c), x2: X(c), y1: Y(Math.min(1, c + error)), y2: Y(Math.max(0, c - error)), stroke: color("quiet"), "stroke-width": 2 }, root);
      svg("circle", { cx: X(c), cy: Y(f), r: 4.5, fill: color("text"), stroke: color("card") }, root);
    });
  }
  function drawAll() {
    drawMap();
    const at = (id) => document.getElementById(id);
    if (at("confidence")) drawConfidence(at("confidence"));
    document.querySelectorAll("[data-trace]").forEach((host) => drawTrace(host, data.traces[Number(host.dataset.trace)]));
    if (data.reliability) drawReliability(at("reliability"));
  }

  themed(drawAll);
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(drawMap); });
})();
