// The page of a study: tables sorted by any header, which the address keeps, and downloads.

const DATA = JSON.parse(byId("data").textContent);
const tables = () => [...document.querySelectorAll(".study-table table")];

// What cells of a column are sorted by: numbers as numbers, what is missing last.
function compareCells(place, down) {
  const sign = down ? -1 : 1;
  return (a, b) => {
    const [one, other] = [a, b].map((row) => row.cells[place].dataset.value);
    if (!one || !other) return Boolean(other) - Boolean(one);
    const [x, y] = [Number(one), Number(other)];
    const by = Number.isNaN(x) || Number.isNaN(y) ? one.localeCompare(other, "en", { numeric: true }) : x - y;
    return sign * by || Number(a.dataset.place) - Number(b.dataset.place);
  };
}

function sortTable(table, place, down) {
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort(compareCells(place, down)));
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    head.setAttribute("aria-sort", at !== place ? "none" : down ? "descending" : "ascending");
  });
}

// ---- the address: #table-norms=3,down

function writeAddress(table, place, down) {
  const kept = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  kept.set(table.id, `${place},${down ? "down" : "up"}`);
  history.replaceState(null, "", `#${kept}`);
}

function readAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const table of tables()) {
    const [place, order] = (kept.get(table.id) || "").split(",");
    if (order && Number(place) < table.tHead.rows[0].cells.length) sortTable(table, Number(place), order === "down");
  }
}

function listen() {
  for (const table of tables()) {
    [...table.tBodies[0].rows].forEach((row, place) => (row.dataset.place = place));
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        sortTable(table, place, down);
        writeAddress(table, place, down);
        announce(`Sorted by ${head.textContent}, ${down ? "descending" : "ascending"}.`);
      });
    });
  }
  document.querySelectorAll("[data-save-table]").forEach((button) => {
    const { saveTable, name } = button.dataset;
    button.addEventListener("click", () => save(`${fileName(name)}.csv`, "text/csv", DATA.tables[saveTable]));
  });
  window.addEventListener("hashchange", readAddress);
}

startTheme(() => {});
listen();
readAddress();
listenForDownloads();
watchCharts();
document.documentElement.classList.add("ready");
