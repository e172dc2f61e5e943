// State from the server in; questions, an animated map, and answers out. Data are only ever set as text, not HTML.
(() => {
  const at = (id) => document.getElementById(id);
  const key = location.hash.slice(1);
  const unique = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  let tab = sessionStorage.getItem("tab") ?? unique();
  const smooth = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  let state = null, layout = null, question = null, again = false, sending = false, shapes = [];
  let refusal = ""; // of what was done last: it stays on the page until something else is done

  // ---- requests ----------------------------------------------------------------------------------
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  function problem(text) {
    at("problem").hidden = !text;
    if (at("problem").textContent !== text) at("problem").textContent = text;
  }
  const refuse = (error) => problem(refusal = error.message);
  const say = (text) => { at("told").textContent = text; };
  // A request without a reply is sent again; an action keeps its key, so that the server counts it once.
  async function ask(path, body = null) {
    for (let pause = 250; ; pause = Math.min(2 * pause, 4000)) {
      let reply, content;
      try {
        reply = await fetch(path, {
          method: body ? "POST" : "GET", body: body && JSON.stringify(body), cache: "no-store",
          headers: { "X-Graphuq-Key": key, ...(body ? { "Content-Type": "application/json" } : {}) },
        });
        content = /^api.(picture|labels)/.test(path) && reply.ok ? await reply.blob() : await reply.json();  // the whole body, inside the try
      } catch {
        problem("graphuq label does not answer. Start the same command again: nothing is lost, and this page goes on by itself.");
        await wait(pause);
        continue;
      }
      if (reply.ok) { problem(state?.failure ? `The model could not learn: ${state.failure}` : refusal); return content; }
      const refused = new Error(content.sentence ?? `The server refused (${reply.status}).`);
      refused.status = reply.status;
      throw refused;
    }
  }

  // ---- actions -----------------------------------------------------------------------------------
  async function act(kind, more = {}, spoken = "") {
    if (sending) { say("One moment, the next row is not there yet."); return; } // an answer would be to a row not seen
    if (kind !== "undo" && kind !== "remove" && !question) return;
    sending = true;
    refusal = "";
    const began = performance.now();
    document.body.setAttribute("aria-busy", "true");
    try {
      take(await ask("api/do", { key: unique(), tab, kind, ...more }));
      if (kind === "answer") document.documentElement.dataset.moved = (performance.now() - began).toFixed(1);
      say(spoken);
      if (kind !== "add" && kind !== "remove") await next();
    } catch (error) {
      refuse(error);
      if (error.status === 409 && kind !== "add") await next();
    } finally {
      sending = false;
      document.body.removeAttribute("aria-busy");
    }
  }
  async function next() {
    again = false;
    show(await ask(`api/question?tab=${tab}`));
    watch();
  }
  const choose = (k) => act("answer", { row: question.row, class: state.classes[k].name, again }, `${state.classes[k].name}.`);
  async function lookAgain(row) {
    again = true;
    show(await ask(`api/row/${row}`));
    at("asked").focus();
    scrollTo({ top: 0, behavior: smooth ? "smooth" : "auto" });
  }
  async function choosingByName(name) {
    const clean = name.trim().replace(/\s+/g, " ");
    if (!clean || !question) return;
    if (!state.classes.some((each) => each.name === clean)) await act("add", { class: clean }, `${clean} added.`);
    const k = state.classes.findIndex((each) => each.name === clean);
    if (k >= 0) await choose(k);
  }

  // ---- display -----------------------------------------------------------------------------------
  function mark(k) {
    const root = svg("svg", { class: "mark", viewBox: "-1.3 -1.3 2.6 2.6", "aria-hidden": "true" });
    svg("path", { d: shapes[k % shapes.length], fill: `var(--k${k})` }, root);
    return root;
  }
  const called = (name) => (/^\d+$/.test(name) ? `row ${name}` : name);
  function oneClass(k, parent) {
    const made = element("span", { class: "class" }, parent);
    made.append(mark(k));
    element("bdi", {}, made, state.classes[k].name);
    return made;
  }
  function picture(entry, parent) {
    if (entry.gray) {
      const canvas = element("canvas", { class: "picture", role: "img", "aria-label": `picture of row ${entry.name}` }, parent);
      paint(canvas, bytes(entry.gray.data), entry.gray.width, entry.gray.height);
    } else if (entry.file) {
      const image = element("img", { alt: `picture of row ${entry.name}: ${entry.file}` }, parent);
      ask(`api/picture/${entry.row}`).then((blob) => {
        image.src = URL.createObjectURL(blob);
        image.onload = () => URL.revokeObjectURL(image.src);
      }).catch((error) => image.replaceWith(element("p", { class: "missing" }, null, error.message)));
    } else return false;
    return true;
  }
  function show(shown) {
    question = shown;
    const face = at("face");
    face.replaceChildren();
    at("again").hidden = !again;
    if (!shown) {
      at("row-name").textContent = "Nothing is left to ask";
      element("p", { class: "note" }, face, "Every row has a class, or someone was not sure of it. Write the results, or look at doubtful labels again.");
      at("near").replaceChildren();
      drawChoices();
      drawMap();
      say("Nothing is left to ask.");
      return;
    }
    at("row-name").textContent = shown.name;
    picture(shown, face);
    const long = shown.cells.filter(([, text]) => text.length > 60), short = shown.cells.filter(([, text]) => text.length <= 60);
    for (const [name, text] of long) {
      element("p", { class: "over note" }, face, name);
      element("p", { class: "text", tabindex: "0" }, face).append(element("bdi", {}, null, text));
    }
    if (short.length) {
      const list = element("dl", { tabindex: "0", "aria-label": "values of the row" }, face);
      list.classList.toggle("long", short.length > 12);
      for (const [name, text] of short) { element("dt", {}, list, name); element("dd", {}, list, text); }
    }
    for (const [name, numbers] of shown.curves) {
      const figure = element("figure", { class: "curve" }, face), low = Math.min(...numbers), high = Math.max(...numbers);
      element("figcaption", {}, figure, name);
      const { root, X, Y } = axes(element("div", {}, figure), `${name}: ${numbers.length} numbers from ${low} to ${high}`, { x: [0, numbers.length - 1 || 1], y: [low, high > low ? high : low + 1], height: 150, bottom: 10, n: 0 });
      svg("polyline", { points: numbers.map((v, i) => `${X(i).toFixed(1)},${Y(v).toFixed(1)}`).join(" "), fill: "none", stroke: color("accent"), "stroke-width": 1.5 }, root);
    }
    const near = at("near");
    near.replaceChildren();
    for (const entry of shown.neighbors) {
      const line = element("li", {}, near), what = element("span", { class: "what" });
      line.classList.toggle("plain", !picture(entry, line));
      line.append(what);
      element("b", {}, what, called(entry.name));
      if (!entry.gray && !entry.file) element("span", {}, what, entry.cells.map(([name, text]) => `${name.length > 20 ? name.slice(0, 19) + "…" : name} ${text}`).join(", "));
      oneClass(entry.class, line);
    }
    if (!shown.neighbors.length) element("li", { class: "note" }, near, "No row has a class yet.");
    drawChoices();
    drawMap();
    const best = shown.p[0], thought = best ? `The model thinks ${state.classes[best[0]].name}, ${sure(best[1])}.` : "";
    say(`${at("told").textContent} Row ${shown.name}. ${thought}`.trim());
  }
  function drawChoices() {
    const list = at("classes"), focused = list.contains(document.activeElement) ? document.activeElement.dataset.class : null;
    list.classList.toggle("many", state.classes.length > 6);
    list.replaceChildren();
    const p = new Map(question?.p ?? []);
    state.classes.forEach((each, k) => {
      const digit = k < 9 ? String(k + 1) : k === 9 ? "0" : "";
      const button = element("button", { type: "button", "data-class": k, ...(digit ? { "aria-keyshortcuts": digit } : {}) }, element("li", {}, list));
      const level = element("span", { class: "level" }, button);
      level.style.background = `var(--k${k})`;
      level.style.width = `${100 * (p.get(k) ?? 0)}%`;
      if (digit) element("kbd", { "aria-hidden": "true" }, button, digit); else element("span", {}, button);
      button.append(mark(k));
      element("bdi", {}, button, each.name);
      element("small", {}, button, p.has(k) ? sure(p.get(k)) : "");
      if (question?.given === k) button.setAttribute("aria-current", "true");
      button.disabled = !question;
      button.addEventListener("click", () => choose(k));
      if (focused === String(k)) button.focus();
    });
    if (!state.classes.length) element("li", { class: "note" }, list, "There are no classes yet: press n, and name the class of this row.");
    for (const id of ["new", "skip", "unsure"]) at(id).disabled = !question || (again && id !== "new");
  }
  function take(latest) {
    state = latest;
    if (state.title) { at("title").textContent = state.title; document.title = `${state.title} · graphuq`; }
    const n = (count, what) => `${count.toLocaleString()} ${what}`;
    at("counts").textContent = `${n(state.labels, "labels")} of ${n(state.rows, "rows")}` +
      (state.unsure ? ` · ${state.unsure} not sure` : "") + (state.skipped ? ` · ${state.skipped} skipped` : "");
    at("busy").hidden = !state.busy;
    at("busy").textContent = state.busy;
    drawLegend();
    drawAdvice();
    drawMap();
    if (state.layout !== layout?.layout) arrange();
  }
  function drawLegend() {
    const host = at("legend");
    host.replaceChildren();
    state.classes.forEach((each, k) => {
      const made = element("span", { class: "legend" }, host);
      made.append(mark(k));
      element("bdi", {}, made, each.name);
      element("small", { title: `labels of class ${each.name}` }, made, `(${each.labels})`);
    });
  }
  let advised = "";
  function drawAdvice() {
    const host = at("advice"), text = JSON.stringify(state.advice);
    if (text !== advised) host.replaceChildren(...state.advice.map((each) => element("p", {}, null, each)));
    advised = text;
    chart(at("variance"), state.progress.map(([labels, variance]) => [labels, variance]), "mean label variance");
    chart(at("loss"), state.progress.filter((each) => each[2] !== null).map(([labels, , loss]) => [labels, loss]), "log-loss of labels left out");
    at("doubts").hidden = !state.suspicious.length;
    const list = at("suspicious");
    if (list.contains(document.activeElement)) return; // do not replace a button that has the focus
    list.replaceChildren();
    for (const each of state.suspicious) {
      const button = element("button", { type: "button" }, element("li", {}, list));
      oneClass(each.given, button);
      const what = element("span", { class: "what" }, button);
      element("b", {}, what, called(each.name));
      const line = element("span", {}, what, "others say ");
      element("bdi", {}, line, state.classes[each.likelier].name);
      element("small", {}, button, sure(each.probability));
      button.addEventListener("click", () => lookAgain(each.row));
    }
  }
  function chart(host, points, label) {
    if (points.length < 2) { host.replaceChildren(element("p", { class: "empty" }, null, "The curve appears after a few more answers.")); return; }
    const xs = points.map((each) => each[0]), ys = points.map((each) => each[1]);
    const least = Math.min(...xs), most = Math.max(...xs, least + 1);
    const n = Math.min(4, most - least); // labels are counted: no tick lies between whole numbers
    const { root, X, Y } = axes(host, `${label}, now ${ys.at(-1).toFixed(3)}`, { x: [least, most], y: [0, Math.max(...ys, 1e-9)], height: 170, xLabel: "labels", n });
    svg("polyline", { points: points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join(" "), fill: "none", stroke: color("accent"), "stroke-width": 2, "stroke-linejoin": "round" }, root);
    svg("circle", { cx: X(xs.at(-1)), cy: Y(ys.at(-1)), r: 4, fill: color("accent") }, root);
  }

  // ---- the map -----------------------------------------------------------------------------------
  const map = at("map");
  let from = null, moving = 0, dots = [];
  async function arrange() {
    const target = await ask("api/layout"), shorts = (text) => Array.from(new Uint16Array(bytes(text).buffer), (v) => v / 65535);
    target.x = shorts(target.x); target.y = shorts(target.y);
    from = layout && smooth ? { x: layout.x, y: layout.y, began: performance.now() } : null;
    layout = target;
    cancelAnimationFrame(moving);
    const step = () => { drawMap(); if (from) moving = requestAnimationFrame(step); };
    step();
  }
  function drawMap() {
    if (!layout || !state) return;
    const { width, height } = map.getBoundingClientRect(), ratio = devicePixelRatio || 1, pad = 16;
    if (map.width !== Math.round(width * ratio) || map.height !== Math.round(height * ratio)) { map.width = Math.round(width * ratio); map.height = Math.round(height * ratio); }
    const context = map.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const t = from ? Math.min(1, (performance.now() - from.began) / 600) : 1, ease = t * t * (3 - 2 * t);
    if (t === 1) from = null;
    const X = (v) => pad + v * (width - 2 * pad), Y = (v) => height - pad - v * (height - 2 * pad);
    const [middle, text, card] = ["middle", "text", "card"].map(color), colors = state.classes.map((_, k) => color("k" + k));
    const kinds = state.map && bytes(state.map.class), sureness = state.map && bytes(state.map.sure);
    const n = layout.rows.length, size = n > 1500 ? 2.6 : 3.6, paths = drawMap.paths ??= shapes.map((path) => new Path2D(path));
    const order = Array.from({ length: n }, (_, i) => i);
    if (sureness) order.sort((a, b) => sureness[b] - sureness[a]); // uncertain rows are drawn on top
    dots = [];
    const shade = new Map(); // cache: few shades, each mixed once
    const fill = (k, s) => { const id = k * 32 + (s >> 3); if (!shade.has(id)) shade.set(id, mix(middle, colors[k], ((s >> 3) + 0.5) / 32)); return shade.get(id); };
    for (const i of order) {
      const [ox, oy] = from ? [from.x[i], from.y[i]] : [0, 0];
      const x = X(from ? ox + (layout.x[i] - ox) * ease : layout.x[i]), y = Y(from ? oy + (layout.y[i] - oy) * ease : layout.y[i]);
      const k = kinds && kinds[i] < colors.length ? kinds[i] : -1, s = k < 0 ? 0 : sureness[i];
      drawDot(context, { x, y, reach: size, path: paths[k < 0 ? 1 : k % paths.length], fill: k < 0 ? middle : fill(k, s), edge: s < 100 ? text : card, width: 0.5, edgeAlpha: 0.55 });
      dots.push({ i, x, y, k, s });
    }
    const large = width < 500 || state.stars.length > 60 ? 7 : 10;
    for (const [, sx, sy, k] of state.stars) drawDot(context, { x: X(sx), y: Y(sy), reach: large, path: stars[k % stars.length], fill: colors[k], edge: text, width: 1.4 });
    const here = question && layout.rows.indexOf(question.row);
    if (question && here >= 0) {
      context.strokeStyle = text; context.lineWidth = 2.5;
      context.beginPath(); context.arc(X(layout.x[here]), Y(layout.y[here]), 11, 0, 7); context.stroke();
      context.strokeStyle = card; context.lineWidth = 1;
      context.beginPath(); context.arc(X(layout.x[here]), Y(layout.y[here]), 13, 0, 7); context.stroke();
    }
    at("map-told").textContent = `Map of ${n.toLocaleString()} rows, ${state.stars.length} of them labeled; colors are the likeliest classes.`;
  }
  map.addEventListener("pointermove", (event) => {
    const tip = at("tip"), best = nearestDot(map, dots, event, 12);
    if (!best) { tip.style.display = "none"; return; }
    tip.replaceChildren(element("b", {}, null, layout.names[best.i]));
    if (best.k >= 0) element("div", {}, tip).append(element("bdi", {}, null, state.classes[best.k].name), best.s < 64 ? ", hardly known" : best.s < 190 ? ", likely" : ", quite sure");
    placeTip(tip, event.clientX, event.clientY);
  });
  map.addEventListener("pointerleave", () => { at("tip").style.display = "none"; });

  // ---- keys and buttons --------------------------------------------------------------------------
  const naming = at("naming");
  function openNaming() {
    if (!question) return;
    at("name").value = "";
    at("known").replaceChildren(...state.classes.map((each) => element("option", { value: each.name })));
    const removable = state.classes.map((each, k) => [each, k]).filter(([each]) => each.removable);
    at("removal").hidden = !removable.length;
    at("removal").open = removable.some(([each]) => !each.labels);
    at("removable").replaceChildren(...removable.map(([each, k]) => {
      const line = element("li"), button = element("button", { type: "button" }, line);
      oneClass(k, button);
      element("span", { class: "what" }, button, "");
      element("small", {}, button, each.labels ? `and its ${each.labels} label${each.labels > 1 ? "s" : ""}` : "");
      button.addEventListener("click", () => { naming.close(""); act("remove", { class: each.name }, `${each.name} removed.`).then(() => next()); });
      return line;
    }));
    naming.showModal();
    at("name").focus();
  }
  naming.addEventListener("close", () => { if (naming.returnValue === "take") choosingByName(at("name").value); naming.returnValue = ""; });
  const setAside = (kind, spoken) => { if (question && !again) act(kind, { row: question.row }, spoken); };
  const does = { n: openNaming, s: () => setAside("skip", "Skipped."), "?": () => setAside("unsure", "Not sure."), u: () => act("undo", {}, "Undone.") };
  at("new").addEventListener("click", does.n);
  at("skip").addEventListener("click", does.s);
  at("unsure").addEventListener("click", does["?"]);
  at("undo").addEventListener("click", does.u);
  addEventListener("keydown", (event) => {
    if (naming.open || event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target.closest("input, textarea, select")) return;
    const k = /^[0-9]$/.test(event.key) ? (Number(event.key) + 9) % 10 : -1;
    if (k >= 0 && question && k < Math.min(10, state.classes.length)) choose(k);
    else if (event.key in does) does[event.key]();
    else if (event.key === "Escape" && again) next();
    else return;
    event.preventDefault();
  });
  at("write").addEventListener("click", async () => {
    at("write").disabled = true;
    at("write").textContent = "Writing …";
    refusal = "";
    try { const { sentence } = await ask("api/write", {}); say(sentence); at("write").textContent = "Written ✓"; at("write").title = sentence; }
    catch (error) { refuse(error); at("write").textContent = "Write results"; }
    at("write").disabled = false;
  });
  // The key travels in a header, so a plain link would be refused.
  for (const kind of ["csv", "json"]) {
    at(kind).addEventListener("click", async () => {
      try {
        const address = URL.createObjectURL(await ask(`api/labels.${kind}`));
        element("a", { href: address, download: `labels.${kind}` }, null).click();
        setTimeout(() => URL.revokeObjectURL(address), 60_000);
        say("Saved.");
      } catch (error) { refuse(error); }
    });
  }

  // ---- polling for updates -----------------------------------------------------------------------
  let watching = 0;
  async function watch() {
    clearTimeout(watching);
    try {
      const latest = await ask(`api/state?tab=${tab}`);
      if (!sending && JSON.stringify(latest) !== JSON.stringify(state)) {
        const more = state && latest.classes.length !== state.classes.length;
        take(latest);
        const unanswered = question && !question.p.length && state.map ? question : null; // asked before there was a model
        if (unanswered) unanswered.p = (await ask(`api/row/${unanswered.row}`)).p;
        if (more || unanswered) drawChoices();
      }
    } catch (error) { problem(error.message); if (error.status === 401) return; }
    clearTimeout(watching);
    watching = setTimeout(watch, state?.busy ? 500 : 10_000);
  }

  themed(() => { if (state) { drawMap(); drawAdvice(); } });
  addEventListener("resize", () => requestAnimationFrame(drawMap));
  addEventListener("hashchange", () => location.reload());

  // A duplicated tab inherits the id of the first one, which holds a lock on it: it takes a new id.
  const alone = () => new Promise((done) => {
    if (!navigator.locks) { done(); return; }
    navigator.locks.request(`graphuq ${tab}`, { ifAvailable: true }, (lock) => {
      if (!lock) { tab = unique(); alone().then(done); return null; }
      done();
      return new Promise(() => {});
    });
  });
  (async () => {
    try {
      await alone();
      sessionStorage.setItem("tab", tab);
      shapes = await ask("shapes.json");
      take(await ask(`api/state?tab=${tab}`));
      await next();
      document.documentElement.dataset.ready = "yes";
    } catch (error) { problem(error.message); }
  })();
})();
