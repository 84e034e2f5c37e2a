// The page: what is chosen, and everything redrawn from it.

const DATA = JSON.parse(byId("data").textContent);
const MANY = 20; // classes beyond which both ends of the ranking are worth choosing

const state = {
  run: 0,
  views: DATA.runs.map((run) => run.headline),
  level: "class",
  sort: { key: "accuracy", down: false },
  search: "",
  ends: "all",
  most: 10,
  errorsOf: "",
};

function redraw() {
  const run = DATA.runs[state.run];
  const view = run.views[state.views[state.run]];
  if (!run.rollup) state.level = "class";
  document.querySelectorAll("[data-run]").forEach((part) => (part.hidden = Number(part.dataset.run) !== state.run));
  drawControls(run);
  drawTable(state, run, view);
  drawConfusion(state, run, view);
}

function drawControls(run) {
  const attack = byId("attack");
  attack.replaceChildren(...run.views.map((view, place) => h("option", { value: place }, view.attack)));
  attack.value = state.views[state.run];
  byId("level-field").hidden = !run.rollup;
  byId("ends-field").hidden = run.classes.length <= MANY;
  if (run.rollup) byId("level-name").textContent = run.rollup.kind;
  byId("level").checked = state.level === "group";
}

function listen() {
  document.querySelectorAll("input[name=run]").forEach((radio) =>
    radio.addEventListener("change", () => {
      state.run = Number(radio.value);
      redraw();
      announce(`Now showing ${DATA.runs[state.run].name}.`);
    }),
  );
  byId("attack").addEventListener("change", (event) => {
    state.views[state.run] = Number(event.target.value);
    redraw();
    announce(`Now under ${event.target.selectedOptions[0].textContent}.`);
  });
  byId("search").addEventListener("input", (event) => {
    state.search = event.target.value.trim();
    redraw();
    announce(`${byId("class-count").textContent} shown.`);
  });
  byId("level").addEventListener("change", (event) => {
    state.level = event.target.checked ? "group" : "class";
    redraw();
  });
  const choose = () => {
    state.ends = byId("ends").value;
    state.most = Math.max(1, Number(byId("most").value) || 1);
    redraw();
  };
  byId("ends").addEventListener("change", choose);
  byId("most").addEventListener("input", choose);
  byId("errors-of").addEventListener("input", (event) => {
    state.errorsOf = event.target.value.trim();
    redraw();
    announce(`${plural(byId("errors-list").children.length, "pair")} listed.`);
  });
  byId("cell-close").addEventListener("click", () => byId("cell").close());
  byId("cell").addEventListener("click", (event) => {
    if (event.target === byId("cell")) byId("cell").close(); // the backdrop
  });
  window.addEventListener("hashchange", followLink);
}

// #class-cat: the row of cat, whatever was searched for or hidden, and its errors beside the confusion.
function followLink() {
  const slug = decodeURIComponent(location.hash.slice(1)).replace(/^class-/, "");
  const run = DATA.runs[state.run];
  const place = run.slugs.indexOf(slug);
  if (!location.hash.startsWith("#class-") || place < 0) return;
  Object.assign(state, { level: "class", search: "", errorsOf: run.classes[place] });
  const shown = chooseRows(tableRows(run, run.views[state.views[state.run]], "class"), state);
  if (!shown.some((row) => row.slug === slug)) state.ends = byId("ends").value = "all";
  byId("search").value = "";
  byId("errors-of").value = state.errorsOf;
  redraw();
  document.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
  const row = byId(`class-${slug}`);
  row.classList.add("chosen");
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
}

startTheme(() => DATA.runs.length && redraw());
if (DATA.runs.length) {
  if (DATA.runs[0].classes.length > 4 * MANY) {
    state.ends = byId("ends").value = "both";
  }
  listen();
  redraw();
  followLink();
}
watchCharts();
document.documentElement.classList.add("ready");
