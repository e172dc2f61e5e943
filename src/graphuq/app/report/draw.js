// What the pages of graphuq draw with: elements, axes, colors and shapes. Text is only ever set as text.
"use strict";
const SVG = "http://www.w3.org/2000/svg";
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const percent = (x) => (100 * x).toFixed(1) + "%";
const sure = (p) => ({ "100.0%": "> 99.9%", "0.0%": "< 0.1%" })[percent(p)] ?? percent(p); // nobody can tell more
function filled(made, attributes, parent, text) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
const element = (name, attributes = {}, parent = null, text = null) => filled(document.createElement(name), attributes, parent, text);
const svg = (name, attributes, parent, text = null) => filled(document.createElementNS(SVG, name), attributes, parent, text);
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * step; x += step) found.push(Number(x.toPrecision(6)));
  return found;
}
// An empty plot with axes; returns the drawing and the two scales.
function axes(host, label, { x, y, height = 240, bottom = 36, xLabel = "", yLabel = "", n = 5 }) {
  host.replaceChildren();
  const levels = ticks(y[0], y[1], 4).map((t) => [t, t.toLocaleString("en", { maximumSignificantDigits: 6 })]);
  const [width, right, top] = [420, 10, 10];
  const left = Math.max(44, 20 + 7.5 * Math.max(...levels.map(([, told]) => told.length))); // room for the numbers and yLabel
  const root = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, host);
  const X = (v) => left + ((v - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
  const Y = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0] || 1)) * (height - bottom - top);
  for (const [t, told] of levels) {
    svg("line", { class: "grid", x1: left, x2: width - right, y1: Y(t), y2: Y(t) }, root);
    svg("text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, root, told);
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
// A square of gray values on a canvas.
function paint(canvas, gray, width, height, start = 0) {
  canvas.width = width; canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) image.data.set([gray[start + i], gray[start + i], gray[start + i], 255], 4 * i);
  context.putImageData(image, 0, 0);
}
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
// A row on a map: its shape in the color of its class, gray where unsure; a star where it is labeled.
function drawDot(context, { x, y, path, fill, reach, edge, width, alpha = 1, edgeAlpha = 1 }) {
  context.save();
  context.translate(x, y);
  context.scale(reach, reach);
  context.globalAlpha = alpha;
  context.fillStyle = fill;
  context.fill(path);
  context.lineWidth = width / reach;
  context.strokeStyle = edge;
  context.globalAlpha = alpha * edgeAlpha;
  context.stroke(path);
  context.restore();
}
// The dot within so many pixels of a pointer, or null; a bonus in pixels squared for those that count for more.
function nearestDot(canvas, dots, event, reach, bonus = () => 0) {
  const box = canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null, least = reach ** 2;
  for (const dot of dots) {
    const distance = (dot.x - x) ** 2 + (dot.y - y) ** 2 - bonus(dot);
    if (distance < least) [best, least] = [dot, distance];
  }
  return best;
}
// What is told beside a pointer, within the window.
function placeTip(tip, x, y) {
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(x + 16, innerWidth - box.width - 8)) + "px";
  tip.style.top = Math.max(8, y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16) + "px";
}
// Light or dark as the system is, until someone presses the button.
function themed(draw) {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = (name) => { root.dataset.theme = name; draw(); };
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  theme(dark.matches ? "dark" : "light");
}
