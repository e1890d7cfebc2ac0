"use strict";
// The map itself: what is where, and how it is drawn. map_parts.js follows in the same script.

const { body } = document;
const part = (name) => document.getElementById(name);
const fail = (message) => {
  body.dataset.error = message;
  part("help").textContent = `This page does not work here: ${message}`;
  part("help").className = "wrong";
};
window.onerror = (message) => fail(String(message));

const data = JSON.parse(part("data").textContent);
const count = data.names.length;
const stage = part("stage"), map = part("map"), card = part("card");
const pen = map.getContext("2d");
const hidden = new Set();
const CLOSEST = 200, MARGIN = 0.94, PAIR_GAP = 90;
const atlases = part("atlases").children;
let width = 1, height = 1;
let view = { x: 0.5, y: 0.5, zoom: 1 };
let hovered = -1, chosen = [], waiting = false;

// Thumbnails

function cut(target, number, left, top, wide, high) {
  const perPage = data.columns * data.rows;
  const place = number % perPage;
  const [w, h] = data.sizes[number];
  target.imageSmoothingEnabled = !(data.sharp && wide > w);
  target.imageSmoothingQuality = "high";
  target.drawImage(
    atlases[Math.floor(number / perPage)],
    (place % data.columns) * data.cell, Math.floor(place / data.columns) * data.cell, w, h,
    left, top, wide, high,
  );
}

function fitted(number, side) {
  const [w, h] = data.sizes[number];
  const factor = side / Math.max(w, h);
  return [w * factor, h * factor];
}

function thumbnail(number, side, canvas = document.createElement("canvas")) {
  const dense = window.devicePixelRatio || 1;
  const [w, h] = fitted(number, side * dense);
  canvas.width = canvas.height = Math.round(side * dense);
  if (canvas.parentNode === card) [canvas.width, canvas.height] = [Math.round(w), Math.round(h)];
  cut(canvas.getContext("2d"), number, (canvas.width - w) / 2, (canvas.height - h) / 2, w, h);
  return canvas;
}

// The map

const smallest = () => Math.min(Math.max(Math.sqrt((0.3 * width * height) / count), 10), 64);
const side = () => Math.min(smallest() * view.zoom ** 0.6, 120);
const unit = () => Math.min(width, height) * MARGIN - smallest();
const shown = (number) => !hidden.has(data.members[number]);
const onScreen = (number) => {
  const scale = unit() * view.zoom;
  return [width / 2 + (data.x[number] - view.x) * scale, height / 2 + (data.y[number] - view.y) * scale];
};

function paint() {
  waiting = false;
  const dense = window.devicePixelRatio || 1;
  const style = getComputedStyle(document.documentElement);
  const line = style.getPropertyValue("--line"), accent = style.getPropertyValue("--accent");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  const marked = new Set((hovered < 0 ? chosen : [...chosen, hovered]).filter(shown));
  const size = Math.max(side(), 40), beside = aside(size);
  let drawn = 0;
  for (let number = 0; number < count; number++) {
    if (shown(number) && (marked.has(number) ? inside(number, size) : stamp(number, side(), line))) drawn++;
  }
  if (chosen.length === 2 && chosen.every(shown)) join(...chosen, beside, accent);
  for (const number of marked) stamp(number, size, line, accent, beside[chosen.indexOf(number)]);
  Object.assign(body.dataset, { points: drawn, zoom: view.zoom.toFixed(2), hovered, chosen: chosen.join(" ") });
}

// How far the images of a pair are moved so that neither hides the other.
function aside(size) {
  if (chosen.length !== 2) return [0, 0];
  const [[ax, ay], [bx, by]] = chosen.map(onScreen);
  const gap = Math.hypot(ax - bx, ay - by) < size + 12 ? (size + 12) / 2 : 0;
  return gap === 0 ? [0, 0] : [(ax + bx) / 2 - gap - ax, (ax + bx) / 2 + gap - bx];
}

function inside(number, size) {
  const [x, y] = onScreen(number);
  return x > -size && y > -size && x < width + size && y < height + size;
}

function stamp(number, size, line, accent, moved = 0) {
  if (!inside(number, size)) return false;
  const [left, y] = onScreen(number), [w, h] = fitted(number, size), x = left + moved;
  const group = data.groups[data.members[number]];
  const border = accent ? 3 : group ? Math.min(Math.max(1.5, size / 16), 4) : 1;
  pen.fillStyle = accent || (group ? group[1] : line);
  pen.fillRect(x - w / 2 - border, y - h / 2 - border, w + 2 * border, h + 2 * border);
  cut(pen, number, x - w / 2, y - h / 2, w, h);
  return true;
}

function join(first, second, beside, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 3;
  pen.beginPath();
  pen.moveTo(onScreen(first)[0] + beside[0], onScreen(first)[1]);
  pen.lineTo(onScreen(second)[0] + beside[1], onScreen(second)[1]);
  pen.stroke();
}

function redraw() {
  if (!waiting) requestAnimationFrame(paint);
  waiting = true;
}

function at(x, y) {
  for (let number = count - 1; number >= 0; number--) {
    if (!shown(number)) continue;
    const [px, py] = onScreen(number), [w, h] = fitted(number, side());
    if (Math.abs(px - x) <= w / 2 + 1 && Math.abs(py - y) <= h / 2 + 1) return number;
  }
  return -1;
}

function zoom(factor, x = width / 2, y = height / 2) {
  const before = unit() * view.zoom;
  const wx = view.x + (x - width / 2) / before, wy = view.y + (y - height / 2) / before;
  view.zoom = Math.min(Math.max(view.zoom * factor, 0.5), CLOSEST);
  const after = unit() * view.zoom;
  view.x = wx - (x - width / 2) / after;
  view.y = wy - (y - height / 2) / after;
  place();
}

function move(dx, dy) {
  const scale = unit() * view.zoom;
  view.x = Math.min(Math.max(view.x - dx / scale, -0.2), 1.2);
  view.y = Math.min(Math.max(view.y - dy / scale, -0.2), 1.2);
  place();
}

function all() {
  view = { x: 0.5, y: 0.5, zoom: 1 };
  choose([]);
}

function visit(numbers) {
  const mean = (values) => numbers.reduce((sum, number) => sum + values[number], 0) / numbers.length;
  const apart = Math.hypot(...[data.x, data.y].map((values) => values[numbers[0]] - values[numbers.at(-1)]));
  const wanted = apart > 0 ? PAIR_GAP / (apart * Math.min(width, height)) : CLOSEST;
  const near = numbers.length === 2 ? Math.min(Math.max(wanted, 2), 8) : Math.max(view.zoom, 5);
  view = { x: mean(data.x), y: mean(data.y), zoom: near };
  for (const number of numbers) show(data.members[number], true);
  choose(numbers);
  if (stage.getBoundingClientRect().top < 0) stage.scrollIntoView({ block: "start" });
}

function choose(numbers) {
  chosen = numbers;
  hovered = -1;
  for (const button of document.querySelectorAll("aside li button")) {
    button.classList.toggle("on", numbers.length > 0 && button.dataset.images === numbers.join(" "));
  }
  place();
}
