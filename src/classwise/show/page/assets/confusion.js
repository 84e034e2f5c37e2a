// Confusion: a grid of buttons while its cells are legible, a map beyond that (confusion_map.js), and the list of the most frequent errors.

const MOST_CELLS = 40; // classes of a grid
const MOST_NUMBERS = 20; // classes whose shares are written into the cells
const MOST_LISTED = 12;
const MOST_PRINTED = 60; // pairs on paper, where a map of many classes cannot be pointed at

// The confusion of a view as a list of errors, and its sums; for groups, the errors between them.
function errorsOf(run, view, level) {
  const names = level === "group" ? run.rollup.names : run.classes;
  const at = level === "group" ? (place) => run.rollup.of[place] : (place) => place;
  const totals = level === "group" ? view.groups.n : view.rows.n;
  const cells = new Map();
  const flat = view.errors;
  for (let k = 0; k < flat.length; k += 3) {
    const [i, j] = [at(flat[k]), at(flat[k + 1])];
    const key = i * names.length + j;
    cells.set(key, (cells.get(key) || 0) + flat[k + 2]);
  }
  const errors = [...cells].map(([key, n]) => {
    const [i, j] = [Math.floor(key / names.length), key % names.length];
    return { i, j, n, share: n / totals[i] };
  });
  return { names, totals, errors, cells, order: level === "group" ? names.map((_, k) => k) : run.order };
}

function describe({ names, totals }, { i, j, n, share }) {
  return `${names[i]} → ${names[j]}: ${percent(share)} (${count(n)} of ${plural(totals[i], "image")})`;
}

// Black or white, whichever is legible on the colour: one of them always has a contrast of 4.5 to 1.
function inkOn(rgb) {
  const linear = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000" : "#fff";
}

const triple = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/).map(Number);
const mix = (paper, accent, weight) => paper.map((v, k) => Math.round(v + (accent[k] - v) * weight));

function drawConfusion(state, run, view) {
  const table = errorsOf(run, view, state.level);
  const room = byId("confusion-room");
  const peak = Math.max(...table.errors.map((error) => error.share), 1e-9);
  const large = table.names.length > MOST_CELLS;
  room.replaceChildren(large ? confusionMap(table, peak, run, view, state) : confusionGrid(table, peak, run, view, state));
  byId("readout").textContent = large
    ? "Point at a dot to read it, click it to see its images; a double click zooms in, and a drag moves the map."
    : "Point at a cell to read it; click it, or press Enter, to see its images.";
  listErrors(state, run, view, table);
}

function confusionGrid(table, peak, run, view, state) {
  const { names, order, cells, totals } = table;
  const [paper, accent] = [triple("--paper-rgb"), triple("--accent-rgb")];
  const numbered = names.length <= MOST_NUMBERS;
  const showText = (text) => () => (byId("readout").textContent = text);
  const head = order.map((j) => h("th", { scope: "col" }, h("span", {}, names[j])));
  const body = order.map((i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, names[i]),
      ...order.map((j) => {
        const n = cells.get(i * names.length + j) || 0;
        if (i === j && state.level === "class") {
          const right = view.rows.accuracy[i];
          const text = numbered && known(right) ? percent(right, 0).slice(0, -1) : "";
          return h("td", { class: "diagonal", onmouseenter: showText(`${names[i]} is predicted correctly: ${percent(right)}`) }, text);
        }
        if (!n) return h("td", {});
        const error = { i, j, n, share: n / totals[i] };
        const colour = mix(paper, accent, Math.max(error.share / peak, 0.04));
        const text = describe(table, error);
        const show = showText(text);
        const button = h(
          "button",
          {
            type: "button",
            tabindex: "-1",
            "aria-label": text,
            "data-i": i,
            "data-j": j,
            onmouseenter: show,
            onfocus: show,
            onclick: () => openCell(run, view, table, error, state),
          },
          numbered ? (error.share < 0.005 ? "·" : percent(error.share, 0).slice(0, -1)) : "",
        );
        button.style.background = `rgb(${colour.join(" ")})`;
        button.style.color = inkOn(colour);
        return h("td", {}, button);
      }),
    ),
  );
  const grid = h(
    "table",
    { class: `grid ${numbered ? "" : "dense"}`, onkeydown: walkGrid, onfocusin: keepOneStop },
    h("caption", { class: "unseen" }, `Confusion under ${view.attack}: rows are true classes, columns predicted ones, numbers are percent of the row. Arrow keys move from cell to cell.`),
    h("thead", {}, h("tr", {}, h("td", { class: "corner" }, "predicted →\ntrue ↓"), ...head)),
    h("tbody", {}, ...body),
  );
  const first = grid.querySelector("button");
  if (first) first.tabIndex = 0;
  return grid;
}

// Arrow keys step to the next cell that holds an error.
function walkGrid(event) {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  const from = event.target.closest("td");
  if (!step || !from) return;
  event.preventDefault();
  const rows = [...event.currentTarget.querySelectorAll("tbody tr")].map((row) => [...row.children]);
  let y = rows.findIndex((row) => row.includes(from));
  let x = rows[y].indexOf(from);
  for (;;) {
    [y, x] = [y + step[0], x + step[1]];
    const cell = rows[y] && rows[y][x];
    if (!cell) return;
    const button = cell.querySelector("button");
    if (!button) continue;
    button.focus();
    return;
  }
}

// The cell that was reached, by arrow or by click, is the one Tab comes back to.
function keepOneStop(event) {
  if (event.target.localName !== "button") return;
  event.currentTarget.querySelectorAll('[tabindex="0"]').forEach((button) => (button.tabIndex = -1));
  event.target.tabIndex = 0;
}

function listErrors(state, run, view, table) {
  const wanted = state.errorsOf.toLowerCase();
  const chosen = table.errors.filter(({ i, j }) => !wanted || [i, j].some((k) => table.names[k].toLowerCase().includes(wanted)));
  const top = chosen.sort((a, b) => b.n - a.n || b.share - a.share).slice(0, MOST_LISTED);
  const items = top.map((error) => {
    const { i, j, n, share } = error;
    const label = h("span", { class: "pair" }, table.names[i], h("span", { class: "arrow", "aria-label": "misclassified as" }, " → "), table.names[j]);
    const numbers = h("span", { class: "amount" }, `${percent(share)} · ${count(n)}`);
    return h("li", {}, h("button", { type: "button", onclick: () => openCell(run, view, table, error, state) }, label, numbers));
  });
  byId("errors-list").replaceChildren(...items);
  const printed = table.names.length > MOST_CELLS ? chosen.slice(0, MOST_PRINTED) : [];
  byId("errors-print").replaceChildren(...printed.map((error) => h("li", {}, describe(table, error))));
  byId("errors-none").hidden = items.length > 0;
}

function cellImages(run, view, table, error, state) {
  if (state.level === "class" && view.name === "clean") {
    const own = run.portraits[error.i];
    return own ? own.wrong.filter((entry) => entry.predicted === error.j) : [];
  }
  if (state.level === "class") return view.gallery[`${error.i},${error.j}`] || [];
  const inside = Object.entries(view.gallery).filter(([key]) => {
    const [i, j] = key.split(",").map((at) => run.rollup.of[at]);
    return i === error.i && j === error.j;
  });
  return inside.flatMap(([, entries]) => entries).slice(0, 8);
}

function openCell(run, view, table, error, state) {
  const { i, j, n, share } = error;
  const entries = cellImages(run, view, table, error, state);
  const before = run.views[0] === view ? null : errorsOf(run, run.views[0], state.level).cells.get(i * table.names.length + j) || 0;
  byId("cell-title").replaceChildren(table.names[i], h("span", { class: "arrow", "aria-label": "misclassified as" }, " → "), table.names[j]);
  const without = before === null ? "" : ` On clean images: ${count(before)}.`;
  byId("cell-text").textContent = `${count(n)} of ${plural(table.totals[i], "image")} of ${table.names[i]} (${percent(share)}) under ${view.attack}, ${run.name}.${without}`;
  const shown = entries.length ? (entries.length < n ? `The ${entries.length} most confident errors with images are shown.` : "") : view.why;
  byId("cell-note").textContent = shown || "";
  byId("cell-images").className = entries.some((entry) => entry.images.length === 1) ? "images single" : "images";
  byId("cell-images").replaceChildren(...entries.map((entry) => galleryFigure(run, entry)));
  keepCell(run, state.level, i, j);
  if (!byId("cell").open) byId("cell").showModal();
}

function galleryFigure(run, entry, kind = "") {
  const truth = run.classes[entry.true];
  const predicted = run.classes[entry.predicted];
  const image = (number, alt, caption) =>
    h("div", {}, h("img", { src: `data:image/png;base64,${DATA.images[number]}`, alt }), h("span", {}, caption));
  if (entry.images.length === 1) {
    const robust = kind === "robust";
    const text = robust ? `${truth}, robust` : `${predicted} ${percent(entry.confidence, 0)}`;
    const alt = robust ? `Image ${entry.index}: ${truth}, which survives` : `Image ${entry.index}, clean: ${truth}, misclassified as ${predicted}`;
    return h("figure", {}, h("div", { class: "triple" }, image(entry.images[0], alt, text)), h("figcaption", {}, `image ${entry.index}`));
  }
  return h(
    "figure",
    {},
    h(
      "div",
      { class: "triple" },
      image(entry.images[0], `Image ${entry.index}, clean: ${truth}`, truth),
      image(entry.images[1], `Image ${entry.index}, attacked: misclassified as ${predicted}`, `${predicted} ${percent(entry.confidence, 0)}`),
      image(entry.images[2], `What the attack added, amplified ${entry.factor} times`, `difference ×${entry.factor}`),
    ),
    h("figcaption", {}, `image ${entry.index}, ${entry.attack}`),
  );
}
