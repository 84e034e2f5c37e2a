// The page: what is chosen, all of it kept in the address, and everything redrawn from it.

const DATA = JSON.parse(byId("data").textContent);
const MANY = 20; // classes beyond which the ends of the ranking are worth choosing
const USUAL = { level: "class", sort: "accuracy", order: "up", find: "", ends: "all", most: 10, errors: "" };

const state = {
  run: 0,
  views: DATA.runs.map((run) => run.headline),
  level: "class",
  sort: { key: "accuracy", down: false },
  search: "",
  ends: "all",
  most: 10,
  errorsOf: "",
  shownClass: null, // the slug of the class whose panel is open
  shownCell: null, // "cat,dog", or the numbers of two groups
};

// ---- the address: #run=wat&attack=pgd-20&sort=n&order=down&class=cat

const KEYS = ["run", "attack", "level", "sort", "order", "find", "ends", "most", "errors", "map", "class", "cell"];

function addressOf() {
  const run = DATA.runs[state.run];
  const usual = usualEnds(run);
  const now = {
    run: state.run ? run.name : "",
    attack: state.views[state.run] === run.headline ? "" : run.views[state.views[state.run]].name,
    level: state.level === USUAL.level ? "" : state.level,
    sort: state.sort.key === USUAL.sort ? "" : state.sort.key,
    order: state.sort.down ? "down" : state.sort.key === USUAL.sort ? "" : "up",
    find: state.search,
    ends: state.ends === usual.ends ? "" : state.ends,
    most: state.most === usual.most ? "" : String(state.most),
    errors: state.errorsOf,
    map: mapAddress(state, run),
    class: state.shownClass || "",
    cell: state.shownCell || "",
  };
  return new URLSearchParams(Object.entries(now).filter(([, value]) => value)).toString();
}

function writeAddress() {
  const text = addressOf();
  const before = new URLSearchParams(location.hash.slice(1));
  const section = location.hash && ![...before.keys()].some((key) => KEYS.includes(key)); // #confusion
  if (!text && section) return;
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

// The state that the address names; whatever it does not name, or names wrongly, is as usual.
function readAddress() {
  const old = location.hash.match(/^#class-(.+)$/);
  const found = new URLSearchParams(old ? `class=${old[1]}` : location.hash.slice(1));
  if (location.hash && !KEYS.some((key) => found.has(key))) return; // a section
  state.run = Math.max(0, DATA.runs.findIndex((run) => run.name === found.get("run")));
  const run = DATA.runs[state.run];
  const attack = run.views.findIndex((view) => view.name === found.get("attack"));
  state.views[state.run] = attack < 0 ? run.headline : attack;
  state.level = found.get("level") === "group" && run.rollup ? "group" : "class";
  const key = COLUMNS.some((column) => column.key === found.get("sort") && !column.still) ? found.get("sort") : USUAL.sort;
  state.sort = { key, down: found.get("order") === "down" };
  state.search = found.get("find") || "";
  const usual = usualEnds(run);
  state.ends = ["all", "weakest", "strongest", "both"].includes(found.get("ends")) ? found.get("ends") : usual.ends;
  state.most = Math.max(1, Number(found.get("most")) || usual.most);
  state.errorsOf = found.get("errors") || "";
  readMapAddress(found.get("map") || "", state, run);
  state.shownClass = run.slugs.includes(found.get("class")) ? found.get("class") : null;
  state.shownCell = found.get("cell");
}

// Of very many classes the lowest are shown first.
function usualEnds(run) {
  return run.classes.length > 4 * MANY ? { ends: "weakest", most: 2 * MANY } : { ends: "all", most: 10 };
}

// ---- drawing

const current = () => {
  const run = DATA.runs[state.run];
  return { run, view: run.views[state.views[state.run]], level: state.level };
};

function redraw() {
  const { run, view } = current();
  if (!run.rollup) state.level = "class";
  document.querySelectorAll("[data-run]").forEach((part) => (part.hidden = Number(part.dataset.run) !== state.run));
  drawControls(run);
  drawTable(state, run, view);
  drawConfusion(state, run, view);
  markRow();
}

function drawControls(run) {
  document.querySelectorAll("input[name=run]").forEach((radio) => (radio.checked = Number(radio.value) === state.run));
  const attack = byId("attack");
  attack.replaceChildren(...run.views.map((view, place) => h("option", { value: place }, view.attack)));
  attack.value = state.views[state.run];
  byId("level-field").hidden = !run.rollup;
  byId("ends-field").hidden = run.classes.length <= MANY;
  if (run.rollup) byId("level-name").textContent = run.rollup.kind;
  byId("level").checked = state.level === "group";
  byId("ends").value = state.ends;
  for (const [id, value] of [["most", String(state.most)], ["search", state.search], ["errors-of", state.errorsOf]]) {
    if (document.activeElement !== byId(id)) byId(id).value = value; // not while somebody types
  }
}

function change(changes, what) {
  Object.assign(state, changes);
  redraw();
  writeAddress();
  if (what) announce(typeof what === "string" ? what : what());
}

function listen() {
  document.querySelectorAll("input[name=run]").forEach((radio) =>
    radio.addEventListener("change", () => change({ run: Number(radio.value) }, () => `Now showing ${DATA.runs[state.run].name}.`)),
  );
  byId("attack").addEventListener("change", (event) => {
    const name = event.target.selectedOptions[0].textContent;
    state.views[state.run] = Number(event.target.value);
    change({}, `Now under ${name}.`);
  });
  byId("search").addEventListener("input", (event) => change({ search: event.target.value.trim() }, () => `${byId("class-count").textContent} shown.`));
  byId("level").addEventListener("change", (event) => change({ level: event.target.checked ? "group" : "class" }));
  const choose = () => change({ ends: byId("ends").value, most: Math.max(1, Number(byId("most").value) || 1) });
  byId("ends").addEventListener("change", choose);
  byId("most").addEventListener("input", choose);
  byId("errors-of").addEventListener("input", (event) =>
    change({ errorsOf: event.target.value.trim() }, () => `${plural(byId("errors-list").children.length, "pair")} listed.`),
  );
  for (const [id, key] of [["cell", "shownCell"], ["panel", "shownClass"]]) {
    byId(`${id}-close`).addEventListener("click", () => byId(id).close());
    byId(id).addEventListener("click", (event) => event.target === byId(id) && byId(id).close()); // the backdrop
    byId(id).addEventListener("close", () => {
      byId("tip").hidden = true;
      state[key] = null;
      writeAddress();
    });
  }
  byId("panel-before").addEventListener("click", () => stepClass(-1));
  byId("panel-after").addEventListener("click", () => stepClass(1));
  window.addEventListener("hashchange", follow);
}

// ---- the panel of a class, and a cell of the confusion

function openClass(place) {
  const { run } = current();
  state.shownClass = run.slugs[place];
  drawPanel(run, place, state);
  markRow();
  writeAddress();
  byId("panel").scrollTop = 0;
  if (byId("panel").open) return;
  byId("panel").showModal();
  byId("panel-close").focus();
}

// To the next class in the order of the table.
function stepClass(by) {
  const { run, view } = current();
  const rows = sortRows(tableRows(run, view, "class"), state.sort);
  const at = rows.findIndex((row) => row.slug === state.shownClass);
  const next = rows[(at + by + rows.length) % rows.length];
  openClass(next.place);
  announce(`Now showing ${next.name}.`);
}

function markRow() {
  document.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
  const row = state.shownClass && byId(`class-${state.shownClass}`);
  if (row) row.classList.add("chosen");
}

function keepCell(run, level, i, j) {
  state.shownCell = level === "class" ? `${run.slugs[i]},${run.slugs[j]}` : `${i},${j}`;
  writeAddress();
}

function openKeptCell() {
  const { run, view, level } = current();
  const [i, j] = state.shownCell.split(",").map((part) => (level === "class" ? run.slugs.indexOf(part) : Number(part)));
  const table = errorsOf(run, view, level);
  const error = table.errors.find((one) => one.i === i && one.j === j);
  if (error) openCell(run, view, table, error, state);
  else state.shownCell = null;
}

// What the address names: the view, the panel of a class with its row marked, the images of a cell.
function follow() {
  readAddress();
  const { run } = current();
  const place = run.slugs.indexOf(state.shownClass);
  if (place >= 0) state.level = "class";
  redraw();
  for (const [id, shown] of [["panel", place >= 0], ["cell", state.shownCell]]) if (!shown && byId(id).open) byId(id).close();
  if (place >= 0) {
    const row = byId(`class-${state.shownClass}`);
    if (row) row.scrollIntoView({ block: "center", behavior: "instant" });
    openClass(place);
  }
  if (state.shownCell) openKeptCell();
}

startTheme(() => DATA.runs.length && redraw());
if (DATA.runs.length) {
  Object.assign(state, usualEnds(DATA.runs[0]));
  listen();
  follow();
}
listenForDownloads(current);
watchCharts();
document.documentElement.classList.add("ready");
