// The panel of a class: its numbers in every run of the page, its curve over the radii, whom it is confused with, images.

const NEIGHBOURS = 6; // classes listed as confused with it
const KINDS = {
  fragile: ["Most fragile images", "Broken first: at the smallest radius or, at one radius, with the largest loss."],
  robust: ["Most robust images", "They survive every attack of the audit."],
  wrong: ["Misclassified without any attack", "The most confident errors on clean images."],
};

const hueOf = (place) => `hue-${place % 8}`;
const swatchOf = (place) => h("span", { class: `swatch ${hueOf(place)}${place % 16 >= 8 ? " ring" : ""}`, "aria-hidden": "true" });

function drawPanel(run, place, state) {
  const view = run.views[state.views[state.run]];
  const row = tableRows(run, view, "class")[place];
  const name = run.classes[place];
  byId("panel-title").replaceChildren(swatchOf(place), name);
  byId("panel-text").textContent = known(row.accuracy)
    ? `${percent(row.accuracy)} robust (${run.level} CI ${row.interval}) and ${percent(row.clean)} clean, of ${plural(row.n, "image")}, under ${view.attack}, ${run.name}.`
    : "This class has no images in this audit.";
  byId("panel-body").replaceChildren(
    ...[everyRun(name), curveOf(run, place, name), neighbours(run, view, place, state), portraits(run, place, view)].filter(Boolean),
  );
}

// ---- its numbers in every run

function everyRun(name) {
  const rows = DATA.runs.flatMap((run) => {
    const place = run.classes.indexOf(name);
    if (place < 0) return [];
    const row = tableRows(run, run.views[run.headline], "class")[place];
    const other = known(row.predicted) ? `${run.classes[row.predicted]} ${percent(row.share, 0)}` : "–";
    const numbers = [percent(row.clean), percent(row.accuracy), row.interval, row.probability];
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, run.name),
      h("td", {}, run.views[run.headline].attack),
      ...numbers.map((text) => h("td", { class: "number" }, text)),
      h("td", {}, other),
    );
  });
  const head = ["run", "attack", "clean", "robust", "interval", "p(worst)", "misclassified as"];
  const table = h(
    "table",
    { class: "plain" },
    h("thead", {}, h("tr", {}, ...head.map((text, at) => h("th", { scope: "col", class: at > 1 && at < 6 ? "number" : null }, text)))),
    h("tbody", {}, ...rows),
  );
  return part(
    rows.length > 1 ? "In every run of this page" : "Its numbers",
    h("div", { class: "scroll", role: "region", "aria-label": `Numbers of ${name}`, tabindex: "0" }, table),
  );
}

const part = (title, ...children) => h("section", { class: "part" }, h("h3", {}, title), ...children);

// ---- its curve over the radii

// Letters have the same size on a telephone, so there the plot is narrower.
const frameOf = () => ({ width: innerWidth < 640 ? 340 : 680, height: 260, left: 46, right: innerWidth < 640 ? 92 : 150, top: 14, bottom: 38 });

function curveOf(run, place, name) {
  const lines = DATA.runs.flatMap((other, number) => {
    const at = other.classes.indexOf(name);
    return at < 0 ? [] : other.curves.map((curve) => ({ run: other, number, at, curve }));
  });
  const own = lines.filter((line) => line.run === run);
  if (!own.length) return part("Accuracy over the radius", h("p", { class: "aside" }, "This audit has one radius. Audit with --eps-grid 8 to see the curve of each class."));
  const frame = frameOf();
  const most = Math.max(...lines.flatMap((line) => line.curve.eps)) || 1;
  const x = (eps) => frame.left + ((frame.width - frame.left - frame.right) * eps) / most;
  const y = (share) => frame.top + (frame.height - frame.top - frame.bottom) * (1 - share);
  const drawing = s("svg", { viewBox: `0 0 ${frame.width} ${frame.height}`, role: "presentation" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    drawing.append(s("line", { class: "rule", x1: frame.left, x2: frame.width - frame.right, y1: y(share), y2: y(share) }));
    drawing.append(s("text", { x: frame.left - 8, y: y(share) + 4, "text-anchor": "end" }, percent(share, 0)));
  }
  const longest = own.reduce((a, b) => (b.curve.eps.length > a.curve.eps.length ? b : a)).curve;
  let last = -Infinity;
  longest.eps.forEach((eps, k) => {
    if (x(eps) - last < 48) return; // the next label would be printed over this one
    last = x(eps);
    drawing.append(s("text", { x: x(eps), y: frame.height - frame.bottom + 18, "text-anchor": "middle" }, longest.text[k]));
  });
  drawing.append(s("text", { x: (frame.left + frame.width - frame.right) / 2, y: frame.height - 4, "text-anchor": "middle" }, "radius ε"));
  const ends = [];
  for (const { curve } of own.slice(0, 1)) {
    const points = curve.eps.map((eps, k) => [x(eps), y(curve.all[k])]);
    const mark = `class: all images; ${alongText(curve.text, curve.all)}`;
    drawing.append(s("polyline", { class: "everyone", points: points.map((p) => p.join()).join(" "), ...labelled(mark) }));
    ends.push({ y: points.at(-1)[1], text: "all images" });
  }
  for (const line of lines) drawing.append(...curveLine(line, run, name, lines.length > 1, x, y, ends));
  labelEnds(drawing, ends, frame);
  const label = own.map(({ curve, at }) => curve.text.map((text, k) => `${text}: ${percent(curve.accuracy[k][at])}`).join(", ")).join("; ");
  return part(
    "Accuracy over the radius",
    h("div", { class: "chart", role: "img", "aria-label": `Robust accuracy of ${name} by radius. ${label}.` }, drawing),
  );
}

// The tooltip of a mark.
const labelled = (text) => ({ role: "graphics-symbol", "aria-label": text });
const alongText = (radii, shares) => `ε: from ${radii[0]} to ${radii.at(-1)}; robust: from ${percent(shares[0])} to ${percent(shares.at(-1))}`;

// A line with its points and, of the run that is shown, the intervals. What is not known is left out.
function curveLine({ run, number, at, curve }, shown, name, several, x, y, ends) {
  const there = curve.eps.map((_, k) => k).filter((k) => known(curve.accuracy[k][at]));
  if (!there.length) return [];
  const hue = several ? hueOf(number) : hueOf(at);
  const place = (k) => [x(curve.eps[k]), y(curve.accuracy[k][at])];
  const text = run.curves.length > 1 ? `${run.name}, ${curve.family}` : run.name;
  const about = `class: ${name}; run: ${text}`;
  const mark = (k) => labelled(`${about}; ε: ${curve.text[k]}; robust: ${percent(curve.accuracy[k][at])}`);
  const along = alongText(there.map((k) => curve.text[k]), there.map((k) => curve.accuracy[k][at]));
  const parts = [];
  if (run === shown)
    for (const k of there) parts.push(s("line", { class: `reach ${hue}`, x1: place(k)[0], x2: place(k)[0], y1: y(curve.low[k][at]), y2: y(curve.high[k][at]), ...mark(k) }));
  parts.push(s("polyline", { class: `path ${hue}`, points: there.map((k) => place(k).join()).join(" "), ...labelled(`${about}; ${along}`) }));
  for (const k of there) parts.push(s("circle", { class: `point ${hue}`, cx: place(k)[0], cy: place(k)[1], r: 4, ...mark(k) }));
  ends.push({ y: place(there.at(-1))[1], text: several ? text : name });
  return parts;
}

// Labels beside the ends of their lines, no two over each other, each led to its line.
function labelEnds(drawing, ends, frame) {
  const [gap, x, most] = [15, frame.width - frame.right + 10, frame.right < 100 ? 10 : 20];
  const sorted = [...ends].sort((a, b) => a.y - b.y).map((end) => ({ ...end, at: end.y }));
  for (let k = 1; k < sorted.length; k++) sorted[k].at = Math.max(sorted[k].at, sorted[k - 1].at + gap);
  const over = sorted.length ? sorted.at(-1).at - (frame.height - frame.bottom) : 0;
  for (let k = sorted.length - 1, limit = Infinity; k >= 0 && over > 0; k--) {
    sorted[k].at = Math.min(sorted[k].at, limit === Infinity ? frame.height - frame.bottom : limit);
    limit = sorted[k].at - gap;
  }
  for (const { y, at, text } of sorted) {
    drawing.append(s("line", { class: "leader", x1: x - 8, y1: y, x2: x + 6, y2: at }));
    drawing.append(s("text", { class: "name", x: x + 9, y: at + 4 }, text.length > most ? `${text.slice(0, most - 1)}…` : text));
  }
}

// ---- whom it is confused with

function neighbours(run, view, place, state) {
  const table = errorsOf(run, view, "class");
  const sides = {
    "Misclassified as": table.errors.filter(({ i }) => i === place),
    "Predicted instead of": table.errors.filter(({ j }) => j === place),
  };
  const columns = Object.entries(sides).map(([title, errors]) => {
    const top = errors.sort((a, b) => b.n - a.n).slice(0, NEIGHBOURS);
    const items = top.map((error) => {
      const other = error.i === place ? error.j : error.i;
      const numbers = h("span", { class: "amount" }, `${percent(error.share)} · ${count(error.n)}`);
      const name = h("span", { class: "pair" }, swatchOf(other), run.classes[other]);
      return h("li", {}, h("button", { type: "button", onclick: () => openCell(run, view, table, error, { ...state, level: "class" }) }, name, numbers));
    });
    return h("div", {}, h("h4", {}, title), items.length ? h("ol", { class: "errors" }, ...items) : h("p", { class: "aside" }, "No errors."));
  });
  return part("Confused with", h("div", { class: "two" }, ...columns));
}

// ---- its images

function portraits(run, place, view) {
  const own = run.portraits[place];
  const groups = Object.entries(KINDS).filter(([kind]) => own && own[kind].length);
  if (!groups.length) return part("Images", h("p", { class: "aside" }, view.why || run.views[run.headline].why));
  return part(
    "Images",
    ...groups.flatMap(([kind, [title, about]]) => [
      h("h4", {}, title),
      h("p", { class: "aside" }, about),
      h("div", { class: kind === "fragile" ? "images" : "images single" }, ...own[kind].map((entry) => galleryFigure(run, entry, kind))),
    ]),
  );
}
