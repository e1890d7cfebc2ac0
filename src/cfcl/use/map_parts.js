// What stands around the map and moves it: the card, fingers, mouse and keys, the lists. Follows map.js.

// The card with the large image

function place() {
  redraw();
  const number = hovered >= 0 ? hovered : chosen.length === 1 && shown(chosen[0]) ? chosen[0] : -1;
  card.hidden = number < 0;
  if (number < 0) return;
  if (card.dataset.image !== String(number)) {
    card.dataset.image = number;
    thumbnail(number, 200, card.firstElementChild);
    const group = data.groups[data.members[number]];
    card.lastElementChild.replaceChildren(data.names[number], ...(group ? [text("small", group[0])] : []));
  }
  const [x, y] = onScreen(number), gap = side() / 2 + 14;
  const left = x + gap + card.offsetWidth < width ? x + gap : x - gap - card.offsetWidth;
  const limit = (value, most) => Math.max(6, Math.min(value, most - 6));
  const top = limit(y - card.offsetHeight / 2, height - card.offsetHeight);
  card.style.transform = `translate(${limit(left, width - card.offsetWidth)}px, ${top}px)`;
}

function hover(number) {
  if (number === hovered) return;
  hovered = number;
  place();
}

// Fingers, mouse and keys

const held = new Map();
let travelled = 0;

map.addEventListener("pointerdown", (event) => {
  try { map.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone by now */ }
  if (held.size === 0) travelled = 0;
  held.set(event.pointerId, [event.offsetX, event.offsetY]);
  map.classList.add("held");
});
map.addEventListener("pointermove", (event) => {
  const now = [event.offsetX, event.offsetY], before = held.get(event.pointerId);
  if (!before) return hover(at(...now));
  const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
  travelled += Math.hypot(dx, dy);
  held.set(event.pointerId, now);
  if (held.size === 1 && travelled > 4) return move(dx, dy);
  if (held.size === 2) {
    const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const far = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]) || 1;
    zoom(far(now) / far(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    move(dx / 2, dy / 2);
  }
});
const release = (event) => {
  if (!held.delete(event.pointerId)) return;
  map.classList.toggle("held", held.size > 0);
  if (event.type === "pointerup" && held.size === 0 && travelled <= 4) {
    const number = at(event.offsetX, event.offsetY);
    choose(number < 0 ? [] : [number]);
  }
};
map.addEventListener("pointerup", release);
map.addEventListener("pointercancel", release);
map.addEventListener("pointerleave", () => hover(-1));
map.addEventListener("wheel", (event) => {
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 30 : 1;
  zoom(Math.exp(-Math.max(-120, Math.min(120, event.deltaY * lines)) / 400), event.offsetX, event.offsetY);
}, { passive: false });
const KEYS = {
  "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), "0": all, Escape: () => choose([]),
  ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0), ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
};
map.addEventListener("keydown", (event) => {
  if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  KEYS[event.key]();
});
part("in").onclick = KEYS["+"];
part("out").onclick = KEYS["-"];
part("all").onclick = all;

// Lists

function text(kind, words) {
  const found = document.createElement(kind);
  found.textContent = words;
  found.title = words;
  return found;
}

function list(id, entries) {
  part(id).querySelector(".none").hidden = entries.length > 0;
  for (const [numbers, distance] of entries) {
    const button = document.createElement("button"), words = document.createElement("span");
    button.type = "button";
    button.dataset.images = numbers.join(" ");
    words.append(text("b", distance), ...numbers.map((number) => text("i", data.names[number])));
    button.append(...numbers.map((number) => thumbnail(number, 48)), words);
    button.onclick = () => visit(numbers);
    const item = document.createElement("li");
    item.append(button);
    part(id).querySelector("ol").append(item);
  }
}

const chips = data.groups.map(([name, colour, size], group) => {
  const chip = text("button", `${name} · ${size.toLocaleString("en")}`);
  chip.type = "button";
  chip.style.setProperty("--colour", colour);
  chip.setAttribute("aria-pressed", "true");
  chip.onclick = () => { show(group, hidden.has(group)); place(); };
  return chip;
});

function show(group, wanted) {
  if (group < 0) return;
  hidden[wanted ? "delete" : "add"](group);
  chips[group].setAttribute("aria-pressed", String(wanted));
}

function resize() {
  const dense = window.devicePixelRatio || 1;
  [width, height] = [map.clientWidth, map.clientHeight];
  [map.width, map.height] = [Math.round(width * dense), Math.round(height * dense)];
  place();
  paint(); // at once, as the canvas is blank now
}

// By then the thumbnails are there.
window.addEventListener("load", () => {
  part("legend").hidden = chips.length === 0;
  part("legend").querySelector(".chips").append(...chips);
  list("pairs", data.pairs.map(([first, second, distance]) => [[first, second], distance]));
  list("outliers", data.outliers.map(([number, distance]) => [[number], distance]));
  new ResizeObserver(resize).observe(map);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  resize();
  body.dataset.ready = "true";
});
