// Downloads, made in the page: the class table as CSV, everything about a run as JSON, a chart as SVG.

function save(name, kind, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  announce(`${name} was saved.`);
}

// The rule of classwise/core/csv_files.py: no text is a formula to a spreadsheet.
function csvCell(value) {
  if (!known(value)) return "";
  if (typeof value === "number") return String(value);
  const safe = /^'*[=+\-@\t\r]./s.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const csvText = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
const fileName = (...words) => words.join("-").replace(/[^\w.-]+/g, "_");

function classesCsv(run, view, level) {
  const rows = tableRows(run, view, level);
  const head = ["class", "n", "clean", "accuracy", "low", "high", "p_worst", "confused_with", "confused_share"];
  const body = rows.map((row) => [row.name, row.n, row.clean, row.accuracy, row.low, row.high, row.p, known(row.predicted) ? run.classes[row.predicted] : null, row.share]);
  return csvText([head, ...body]);
}

// A run as objects with names, without images.
function runJson(run) {
  const views = run.views.map((view) => ({
    attack: view.name,
    verdict: view.verdict,
    classes: tableRows(run, view, "class").map((row) => ({
      class: row.name,
      n: row.n,
      accuracy: row.accuracy,
      low: row.low,
      high: row.high,
      p_worst: row.p,
      confused_with: known(row.predicted) ? run.classes[row.predicted] : null,
      confused_share: row.share,
    })),
    errors: errorsOf(run, view, "class").errors.map(({ i, j, n }) => ({ true: run.classes[i], predicted: run.classes[j], n })),
  }));
  return JSON.stringify({ run: run.name, headline: run.views[run.headline].name, attacks: views, curves: run.curves }, null, 1);
}

function svgText(chart) {
  const picture = chart.querySelector("img"); // of a study of an earlier version
  if (picture) return new TextDecoder().decode(Uint8Array.from(atob(picture.src.split(",")[1]), (one) => one.charCodeAt(0)));
  const copy = chart.querySelector("svg").cloneNode(true);
  const style = getComputedStyle(chart);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("style", `color: ${style.color}; background: ${getComputedStyle(document.body).backgroundColor}`);
  const [, , width, height] = copy.getAttribute("viewBox").split(/\s+/);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return new XMLSerializer().serializeToString(copy);
}

function listenForDownloads(current) {
  document.querySelectorAll("[data-save-chart]").forEach((button) => {
    button.addEventListener("click", () => {
      const chart = button.closest("figure").querySelector(".chart");
      save(fileName(button.dataset.saveChart) + ".svg", "image/svg+xml", svgText(chart));
    });
  });
  if (!byId("save-csv")) return;
  byId("save-csv").addEventListener("click", () => {
    const { run, view, level } = current();
    save(`${fileName(run.name, view.name)}.csv`, "text/csv", classesCsv(run, view, level));
  });
  byId("save-json").addEventListener("click", () => {
    const { run } = current();
    save(`${fileName(run.name)}.json`, "application/json", runJson(run));
  });
}
