// The class table: sorted by any header, searched by name, cut to both ends, rolled up to groups.

const COLUMNS = [
  { key: "name", label: "class", text: true },
  { key: "n", label: "images" },
  { key: "clean", label: "clean" },
  { key: "accuracy", label: "robust" },
  { key: "bar", label: "with its interval", still: true },
  { key: "low", label: "interval" },
  { key: "p", label: "p(worst)" },
  { key: "share", label: "misclassified as", text: true },
];

// One object per class (or group) from the columns the page carries.
function tableRows(run, view, level) {
  const names = level === "group" ? run.rollup.names : run.classes;
  const own = level === "group" ? view.groups : view.rows;
  const clean = level === "group" ? run.views[0].groups : run.views[0].rows;
  const lowest = Math.min(...own.accuracy.filter(known));
  return names.map((name, place) => ({
    name,
    place,
    slug: level === "group" ? null : run.slugs[place],
    members: level === "group" ? run.rollup.of.filter((group) => group === place).length : null,
    n: own.n[place],
    clean: clean.accuracy[place],
    accuracy: own.accuracy[place],
    low: own.low[place],
    high: own.high[place],
    p: own.p_worst[place],
    interval: own.interval[place],
    probability: own.probability[place],
    weakest: level === "group" ? known(own.accuracy[place]) && own.accuracy[place] === lowest : view.worst.includes(place),
    predicted: own.predicted ? own.predicted[place] : null,
    share: own.share ? own.share[place] : null,
  }));
}

function sortRows(rows, { key, down }) {
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    if (key === "name") return sign * a.name.localeCompare(b.name, "en", { numeric: true });
    if (!known(a[key]) || !known(b[key])) return known(b[key]) - known(a[key]); // what is not known comes last
    return sign * (a[key] - b[key]) || a.place - b.place;
  });
}

// The rows to show: those whose name is searched for, or else the asked-for ends of the ranking.
function chooseRows(rows, { search, ends, most }) {
  if (search) return rows.filter((row) => row.name.toLowerCase().includes(search.toLowerCase()));
  if (ends === "all") return rows;
  const ranked = sortRows(rows.filter((row) => known(row.accuracy)), { key: "accuracy", down: false });
  const weak = ends === "strongest" ? [] : ranked.slice(0, most);
  const strong = ends === "weakest" ? [] : ranked.slice(-most);
  return [...new Set([...weak, ...strong])];
}

function bar(row) {
  if (!known(row.accuracy)) return h("span", { class: "nothing" }, "no images");
  const fill = h("span", { class: "fill" });
  const whisker = h("span", { class: "whisker" });
  fill.style.width = `${100 * row.accuracy}%`;
  whisker.style.left = `${100 * row.low}%`;
  whisker.style.width = `${100 * (row.high - row.low)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, fill, whisker);
}

function tableRow(row, run) {
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // as a link, in a window of its own
    event.preventDefault();
    openClass(row.place);
  };
  const link = { href: `#class=${encodeURIComponent(row.slug)}`, "aria-haspopup": "dialog", onclick: open };
  const name = row.slug ? h("a", link, swatchOf(row.place), row.name) : h("span", {}, row.name);
  const extra = known(row.members) ? ` ${plural(row.members, "class", "classes")}` : row.weakest ? " worst" : "";
  const tag = extra ? h("span", { class: known(row.members) ? "aside" : "tag" }, extra) : null;
  const number = (text, kind = "") => h("td", { class: `number ${kind}` }, text);
  const predicted = known(row.predicted) ? [h("b", {}, run.classes[row.predicted]), ` ${percent(row.share, 0)}`] : ["–"];
  return h(
    "tr",
    { id: row.slug ? `class-${row.slug}` : null, class: row.weakest ? "weakest" : null, tabindex: "-1" },
    h("th", { scope: "row" }, name, tag),
    number(count(row.n), "wide"),
    number(percent(row.clean), "medium"),
    number(percent(row.accuracy), "strong"),
    h("td", { class: "bars" }, bar(row)),
    number(row.interval, "wide"),
    number(row.probability),
    h("td", { class: "predicted" }, ...predicted),
  );
}

function tableHead(state, sortBy) {
  return COLUMNS.map(({ key, label, still, text }) => {
    const kind = { n: "wide", clean: "medium", low: "wide", bar: "bars", share: "predicted" }[key] || "";
    const cell = `${kind} ${text || still ? "" : "number"}`;
    if (still) return h("th", { scope: "col", class: cell }, h("span", { class: "scale" }, "0", h("span", {}, "50"), "100%"));
    const active = state.sort.key === key;
    const order = active ? (state.sort.down ? "descending" : "ascending") : "none";
    const button = h("button", { type: "button", onclick: () => sortBy(key) }, label);
    return h("th", { scope: "col", "aria-sort": order, class: cell, "data-key": key }, button);
  });
}

function drawTable(state, run, view) {
  const rows = tableRows(run, view, state.level);
  const shown = sortRows(chooseRows(rows, state), state.sort);
  const what = state.level === "group" ? ["group", "groups"] : ["class", "classes"];
  byId("class-caption").textContent =
    `Accuracy under ${view.attack} by ${what[0]}, each with its own ${run.level} confidence interval; ` +
    "p(worst) is the posterior probability that it is the worst." +
    (state.level === "group" ? "" : " A click on a class shows its curve, its errors and its images.");
  byId("class-verdict").textContent = view.verdict;
  byId("class-verdict").hidden = view === run.views[run.headline]; // that one is at the top of the page
  byId("class-head").replaceChildren(...tableHead(state, (key) => sortTable(state, key)));
  byId("class-body").replaceChildren(...shown.map((row) => tableRow(row, run)));
  const all = shown.length === rows.length;
  byId("class-count").textContent = all
    ? plural(rows.length, ...what)
    : `${count(shown.length)} of ${plural(rows.length, ...what)}`;
}

function sortTable(state, key) {
  const text = COLUMNS.find((column) => column.key === key).text;
  const down = state.sort.key === key ? !state.sort.down : key !== "name" && key !== "accuracy" && Boolean(!text || key === "share");
  change({ sort: { key, down } });
  byId("class-head").querySelector(`[data-key="${key}"] button`).focus();
  const label = COLUMNS.find((column) => column.key === key).label;
  announce(`Sorted by ${label}, ${down ? "descending" : "ascending"}.`);
}
