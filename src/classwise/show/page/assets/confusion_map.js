// The confusion of very many classes: a map that is zoomed, moved and walked through by keyboard, with names on its axes.

const LEAST_SHOWN = 8; // classes on each axis, at the closest
const LETTER = 12; // pixels a name needs on an axis
const NEAR = 9; // pixels around the pointer in which an error is found
const GRAIN = 2.4; // pixels a lone error covers at least
const REST = 150; // milliseconds without a movement after which the address is written

// What is shown: the first column and row, and how many classes. Kept while only the attack changes.
let mapWindow = null;

// ---- the address: map=10.5,4,21.5

const mapSize = (run, level) => (level === "group" ? run.rollup.names : run.classes).length;
const isWindowOf = (size, number) => mapWindow && mapWindow.all === size && mapWindow.run === number;

// What is shown, as text; none where that is everything, or no map.
function mapAddress({ run: number, level }, run) {
  const size = mapSize(run, level);
  if (size <= MOST_CELLS || !isWindowOf(size, number) || mapWindow.span >= size) return "";
  return [mapWindow.x, mapWindow.y, mapWindow.span].map((value) => Number(value.toFixed(2))).join();
}

// What the text says is shown; everything where it is not a part of this map.
function readMapAddress(text, { run: number, level }, run) {
  const size = mapSize(run, level);
  const [x, y, span] = /^\d+(\.\d+)?(,\d+(\.\d+)?){2}$/.test(text) ? text.split(",").map(Number) : [0, 0, 0];
  const inside = span >= Math.min(LEAST_SHOWN, size) && Math.max(x, y) + span <= size + 0.02; // it is rounded
  mapWindow = { x: 0, y: 0, span: size, all: size, run: number, ...(inside ? { x, y, span } : {}) };
  clampWindow();
}

let resting = null;

// The map after it was moved. Browsers refuse an address that is written many times a second.
function redrawMap(map) {
  drawMap(map);
  clearTimeout(resting);
  resting = setTimeout(writeAddress, REST);
}

function confusionMap(table, peak, run, view, state) {
  const size = table.names.length;
  const order = table.order;
  const place = new Map(order.map((at, k) => [at, k]));
  if (!isWindowOf(size, state.run)) mapWindow = { x: 0, y: 0, span: size, all: size, run: state.run };
  const canvas = h("canvas", { role: "img", "aria-label": `Confusion of ${count(size)} classes under ${view.attack}; the list beside it has its largest entries.` });
  const area = h(
    "div",
    { class: "map tipped", tabindex: "0", role: "application", "aria-roledescription": "confusion matrix", "aria-label": "Arrow keys go from error to error, plus and minus zoom, Home shows everything, Enter shows the images of a cell." },
    canvas,
  );
  const map = { table, order, place, size, peak, run, canvas, area, cursor: null };
  const open = (error) => error && openCell(run, view, table, error, state);
  const button = (text, label, act) => h("button", { type: "button", class: "quiet", "aria-label": label, onclick: () => (act(), redrawMap(map)) }, text);
  const buttons = h(
    "div",
    { class: "zoom" },
    button("+", "Zoom in", () => zoomMap(map, 0.5)),
    button("−", "Zoom out", () => zoomMap(map, 2)),
    button("Whole", "Show all classes", () => zoomMap(map, Infinity)),
  );
  listenToMap(map, open);
  if ("ResizeObserver" in window) new ResizeObserver(() => drawMap(map)).observe(area);
  return h("div", {}, buttons, area);
}

// ---- drawing

function mapSizes({ area }) {
  const width = Math.max(280, Math.min(area.clientWidth || 680, 760));
  const left = width < 480 ? 84 : 132;
  return { width, left, top: left - 14, plot: width - left };
}

function drawMap(map) {
  const { table, place, peak, canvas } = map;
  const { width, left, top, plot } = mapSizes(map);
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = (top + plot) * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${top + plot}px`;
  const brush = canvas.getContext("2d");
  brush.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
  const cell = plot / mapWindow.span;
  brush.font = `${LETTER - 1}px ${getComputedStyle(document.body).fontFamily}`;
  brush.textBaseline = "middle";
  drawNames(brush, map, { left, top, plot, cell, ink, soft, line });
  brush.save();
  brush.beginPath();
  brush.rect(left, top, plot, plot);
  brush.clip();
  brush.fillStyle = `rgb(${triple("--accent-rgb").join(" ")})`;
  const side = Math.max(cell - (cell > 6 ? 1 : 0), GRAIN);
  for (const { i, j, share } of table.errors) {
    const [x, y] = [(place.get(j) - mapWindow.x) * cell, (place.get(i) - mapWindow.y) * cell];
    if (x < -cell || y < -cell || x > plot || y > plot) continue;
    brush.globalAlpha = 0.12 + 0.88 * Math.sqrt(share / peak); // the root, so that rare errors are still seen
    brush.fillRect(left + x, top + y, side, side);
  }
  brush.restore();
  brush.strokeStyle = line;
  brush.strokeRect(left + 0.5, top + 0.5, plot - 1, plot - 1);
  if (map.cursor) {
    brush.strokeStyle = ink;
    brush.lineWidth = 2;
    const [x, y] = [(place.get(map.cursor.j) - mapWindow.x) * cell, (place.get(map.cursor.i) - mapWindow.y) * cell];
    const wide = Math.max(cell, 8);
    brush.strokeRect(left + x + (cell - wide) / 2, top + y + (cell - wide) / 2, wide, wide);
  }
  map.area.dataset.labels = JSON.stringify(map.labels);
}

// Names of classes where each has room, else of the groups they are in: never one over another.
function axisNames(map, cell) {
  const { run, order, table } = map;
  const shown = (from) => order.slice(Math.max(0, Math.floor(from)), Math.ceil(from + mapWindow.span));
  const axis = (from) => {
    const members = shown(from);
    const start = Math.max(0, Math.floor(from));
    const single = cell >= LETTER || !run.rollup || table.names !== run.classes;
    const blocks = [];
    members.forEach((at, k) => {
      const group = single ? at : run.rollup.of[at];
      const last = blocks.at(-1);
      if (last && !single && last.group === group) last.end = start + k + 1;
      else blocks.push({ group, begin: start + k, end: start + k + 1, name: single ? table.names[at] : run.rollup.names[group] });
    });
    let reached = -Infinity;
    return blocks.flatMap(({ begin, end, name }) => {
      const middle = ((begin + end) / 2 - from) * cell;
      if (middle - LETTER / 2 < reached) return [];
      reached = middle + LETTER / 2;
      return [{ name, middle, begin: (begin - from) * cell, end: (end - from) * cell }];
    });
  };
  return { rows: axis(mapWindow.y), columns: axis(mapWindow.x) };
}

function shortened(brush, text, room) {
  if (brush.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && brush.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}

function drawNames(brush, map, { left, top, plot, cell, ink, soft, line }) {
  const { rows, columns } = axisNames(map, cell);
  map.labels = { rows: rows.map(({ name, middle }) => [name, middle]), columns: columns.map(({ name, middle }) => [name, middle]) };
  brush.fillStyle = ink;
  brush.strokeStyle = line;
  const inside = (at) => at >= 0 && at <= plot;
  for (const { name, middle } of rows) {
    if (!inside(middle)) continue;
    brush.textAlign = "right";
    brush.fillText(shortened(brush, name, left - 12), left - 6, top + middle);
  }
  for (const { name, middle } of columns) {
    if (!inside(middle)) continue;
    brush.save();
    brush.translate(left + middle, top - 6);
    brush.rotate(-Math.PI / 2);
    brush.textAlign = "left";
    brush.fillText(shortened(brush, name, top - 10), 0, 0);
    brush.restore();
  }
  const borders = (blocks) => blocks.filter(({ begin, end }) => end - begin > 1.5 * cell && inside(begin)).map(({ begin }) => begin);
  brush.globalAlpha = 0.6;
  for (const at of borders(rows)) brush.strokeRect(left, top + at, plot, 0);
  for (const at of borders(columns)) brush.strokeRect(left + at, top, 0, plot);
  brush.globalAlpha = 1;
  brush.fillStyle = soft;
  brush.textAlign = "left";
  brush.fillText("true ↓", 0, top - 8);
}

// ---- moving

function clampWindow() {
  const { all } = mapWindow;
  mapWindow.span = Math.min(all, Math.max(Math.min(LEAST_SHOWN, all), mapWindow.span));
  for (const key of ["x", "y"]) mapWindow[key] = Math.min(all - mapWindow.span, Math.max(0, mapWindow[key]));
}

// By a factor of the number of classes shown, around a point given in classes: the cursor, or the middle.
function zoomMap(map, factor, around = null) {
  const { cursor, place } = map;
  const middle = around || (cursor ? [place.get(cursor.j) + 0.5, place.get(cursor.i) + 0.5] : [mapWindow.x + mapWindow.span / 2, mapWindow.y + mapWindow.span / 2]);
  const before = mapWindow.span;
  mapWindow.span = Math.min(mapWindow.all, Math.max(LEAST_SHOWN, before * factor));
  const share = around ? [(middle[0] - mapWindow.x) / before, (middle[1] - mapWindow.y) / before] : [0.5, 0.5];
  mapWindow.x = middle[0] - mapWindow.span * share[0];
  mapWindow.y = middle[1] - mapWindow.span * share[1];
  clampWindow();
}

function showCursor(map) {
  const { cursor, place, table } = map;
  const [x, y] = [place.get(cursor.j), place.get(cursor.i)];
  if (x < mapWindow.x || x >= mapWindow.x + mapWindow.span) mapWindow.x = x - mapWindow.span / 2;
  if (y < mapWindow.y || y >= mapWindow.y + mapWindow.span) mapWindow.y = y - mapWindow.span / 2;
  clampWindow();
  byId("readout").textContent = describe(table, cursor);
  announce(byId("readout").textContent);
}

// The next error in a row or, up and down, the nearest one of the next row that has any.
function stepCursor(map, [dx, dy]) {
  const { table, place } = map;
  const from = map.cursor;
  if (!from) return (map.cursor = [...table.errors].sort((a, b) => b.n - a.n || b.share - a.share)[0] || null);
  const at = ({ i, j }) => [place.get(j), place.get(i)];
  const [x, y] = at(from);
  const ahead = table.errors.filter((error) => {
    const [ex, ey] = at(error);
    return dx ? ey === y && (ex - x) * dx > 0 : (ey - y) * dy > 0;
  });
  const cost = (error) => {
    const [ex, ey] = at(error);
    return Math.abs(ey - y) * 1e6 + Math.abs(ex - x);
  };
  if (ahead.length) map.cursor = ahead.reduce((a, b) => (cost(b) < cost(a) ? b : a));
  return map.cursor;
}

function errorAt(map, event) {
  const { left, top, plot } = mapSizes(map);
  const box = map.canvas.getBoundingClientRect();
  const cell = plot / mapWindow.span;
  const [px, py] = [event.clientX - box.left - left, event.clientY - box.top - top];
  if (px < 0 || py < 0 || px > plot || py > plot) return null;
  const [x, y, reach] = [mapWindow.x + px / cell, mapWindow.y + py / cell, Math.max(0.5, NEAR / cell)];
  let [best, nearest] = [null, reach];
  for (const error of map.table.errors) {
    const away = Math.max(Math.abs(map.place.get(error.j) + 0.5 - x), Math.abs(map.place.get(error.i) + 0.5 - y));
    if (away < nearest || (away === nearest && best && error.n > best.n)) [best, nearest] = [error, away];
  }
  return best;
}

function listenToMap(map, open) {
  const { area, canvas } = map;
  let drag = null;
  const inClasses = (event) => {
    const { left, top, plot } = mapSizes(map);
    const box = canvas.getBoundingClientRect();
    const cell = plot / mapWindow.span;
    return [mapWindow.x + (event.clientX - box.left - left) / cell, mapWindow.y + (event.clientY - box.top - top) / cell];
  };
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, from: { ...mapWindow }, moved: false };
    if (mapWindow.span < mapWindow.all) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && mapWindow.span < mapWindow.all) {
      const cell = mapSizes(map).plot / mapWindow.span;
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      drag.moved = drag.moved || Math.hypot(dx, dy) > 4;
      Object.assign(mapWindow, { x: drag.from.x - dx / cell, y: drag.from.y - dy / cell });
      clampWindow();
      byId("tip").hidden = true;
      return redrawMap(map);
    }
    const error = errorAt(map, event);
    canvas.style.cursor = error ? "pointer" : mapWindow.span < mapWindow.all ? "grab" : "default";
    if (!error) return (byId("tip").hidden = true);
    byId("readout").textContent = describe(map.table, error);
    showTip(describe(map.table, error), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) open(errorAt(map, event));
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => (byId("tip").hidden = true));
  canvas.addEventListener("dblclick", (event) => (zoomMap(map, 0.5, inClasses(event)), redrawMap(map)));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel alone moves the page
      event.preventDefault();
      zoomMap(map, event.deltaY < 0 ? 0.8 : 1.25, inClasses(event));
      redrawMap(map);
    },
    { passive: false },
  );
  area.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) {
      if (!stepCursor(map, step)) return;
      showCursor(map);
    } else if (event.key === "+" || event.key === "=") zoomMap(map, 0.5);
    else if (event.key === "-") zoomMap(map, 2);
    else if (event.key === "Home") zoomMap(map, Infinity);
    else if (event.key === "Enter") return open(map.cursor);
    else return;
    event.preventDefault();
    redrawMap(map);
  });
}
