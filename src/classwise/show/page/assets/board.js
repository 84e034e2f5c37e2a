// The leaderboard: rows sorted by any column and filtered, all of it kept in the address.

const DATA = JSON.parse(byId("data").textContent);
const FILTERS = ["data", "threat", "attack", "network"];
const START = { sort: "worst", order: "", data: "", threat: "", attack: "", network: "", find: "", printed: "" };
const state = { ...START };
const choice = (key) => byId(`by-${key}`);
const column = (key) => DATA.columns.find((one) => one.key === key);
const isDown = () => (state.order ? state.order === "down" : column(state.sort).down);

// ---- the address: #sort=average&data=cifar10

function readAddress() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const others = location.hash && !Object.keys(found).some((key) => key in START); // #about
  if (others) return;
  Object.assign(state, START);
  for (const key of Object.keys(START)) if (key in found) state[key] = found[key];
  if (!column(state.sort)) state.sort = START.sort;
  for (const key of FILTERS) if (![...choice(key).options].some((one) => one.value === state[key])) state[key] = "";
}

function writeAddress() {
  const changed = Object.entries(state).filter(([key, value]) => value !== START[key]);
  const text = new URLSearchParams(changed).toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

// ---- rows

function valueOf(row, key) {
  const place = [...row.closest("table").querySelectorAll("thead th")].findIndex((head) => head.dataset.key === key);
  return place < 0 ? "" : row.children[place].dataset.value;
}

function compareRows(key, down) {
  const sign = down ? -1 : 1;
  return (a, b) => {
    const [one, other] = [a, b].map((row) => valueOf(row, key));
    if (!one || !other) return Boolean(other) - Boolean(one); // what is not known comes last
    const by = key === "name" ? one.localeCompare(other, "en", { numeric: true }) : Number(one) - Number(other);
    return sign * by || Number(a.dataset.place) - Number(b.dataset.place);
  };
}

function isShown(row, division) {
  if (FILTERS.slice(0, 3).some((key) => state[key] && division.dataset[key] !== state[key])) return false;
  if (state.network && row.dataset.network !== state.network) return false;
  return !state.find || row.querySelector("th").textContent.toLowerCase().includes(state.find.toLowerCase());
}

// The rows of a part of a table, sorted and filtered; returns how many are left.
function drawPart(body, division) {
  const rows = [...body.querySelectorAll("[data-place]")].sort(compareRows(state.sort, isDown()));
  body.append(...rows);
  rows.forEach((row) => (row.hidden = !isShown(row, division)));
  return rows.filter((row) => !row.hidden).length;
}

function redraw() {
  let shown = 0;
  let all = 0;
  document.querySelectorAll(".division").forEach((division) => {
    const [models, printed] = division.querySelectorAll(".models tbody");
    const left = drawPart(models, division);
    division.hidden = left === 0; // what is printed stands beside models, never alone
    if (printed) printed.hidden = drawPart(printed, division) === 0 || state.printed === "no";
    shown += left;
    all += models.rows.length;
    division.querySelectorAll("thead th[data-key]").forEach((head) => {
      const order = head.dataset.key !== state.sort ? "none" : isDown() ? "descending" : "ascending";
      head.setAttribute("aria-sort", order);
    });
  });
  byId("count").textContent = shown === all ? plural(all, "model") : `${count(shown)} of ${plural(all, "model")}`;
  byId("none").hidden = shown > 0;
  for (const key of FILTERS) choice(key).value = state[key];
  byId("sort").value = state.sort;
  if (byId("find").value.trim() !== state.find) byId("find").value = state.find; // not while somebody types a blank
  byId("printed").checked = state.printed !== "no";
}

function change(changes, what) {
  Object.assign(state, changes);
  writeAddress();
  redraw();
  announce(what || `${byId("count").textContent} shown.`);
}

function sortBy(key) {
  const again = key === state.sort;
  const down = again ? !isDown() : column(key).down;
  const order = down === column(key).down ? "" : down ? "down" : "up";
  change({ sort: key, order }, `Sorted by ${column(key).label}, ${down ? "descending" : "ascending"}.`);
}

// ---- what is clicked, typed and pointed at

function listen() {
  for (const key of FILTERS) choice(key).addEventListener("change", (event) => change({ [key]: event.target.value }));
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value));
  byId("find").addEventListener("input", (event) => change({ find: event.target.value.trim() }));
  byId("printed").addEventListener("change", (event) => change({ printed: event.target.checked ? "" : "no" }));
  document.querySelectorAll(".models thead button").forEach((button) => {
    button.addEventListener("click", () => sortBy(button.closest("th").dataset.key));
  });
  window.addEventListener("hashchange", () => {
    readAddress();
    redraw();
  });
}

function watchStrips() {
  const tip = byId("tip");
  document.querySelectorAll(".division").forEach((division, number) => {
    const { classes, strips } = DATA.divisions[number];
    division.querySelectorAll(".strip").forEach((strip) => {
      const values = strips[Number(strip.closest("tr").dataset.place)];
      strip.addEventListener("mousemove", (event) => {
        const box = strip.getBoundingClientRect();
        const place = Math.min(Math.floor((classes.length * (event.clientX - box.left)) / box.width), classes.length - 1);
        tip.textContent = `${classes[place]}\n${percent(values[place])}`;
        tip.hidden = false;
        tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
        tip.style.top = `${event.clientY + 14}px`;
      });
      strip.addEventListener("mouseleave", () => (tip.hidden = true));
    });
  });
}

startTheme(() => {});
byId("controls").hidden = false;
listen();
readAddress();
redraw();
watchStrips();
document.documentElement.classList.add("ready");
