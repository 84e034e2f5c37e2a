// Marks of charts carry their numbers as a label, which is shown under the pointer, and under the finger that touches them.

function showTip(text, x, y) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 14 + tip.offsetHeight > innerHeight ? y - 10 - tip.offsetHeight : y + 14}px`;
  (document.querySelector("dialog[open]") || document.body).append(tip); // what is modal covers everything else
}

// Where a mark is looked for: under the pointer and, as lines are thin and dashed, up to 3 pixels beside it.
const AROUND = [[0, 0], ...[1, 2, 3].flatMap((far) => [[far, 0], [-far, 0], [0, far], [0, -far]])];

// The label of the mark at a point of a chart, also of one that text covers; a shaded area gives way to what is near.
function labelAt(chart, target, x, y) {
  let area = null;
  for (const [dx, dy] of AROUND) {
    const found = document.elementsFromPoint(x + dx, y + dy);
    for (const element of dx || dy ? found : [target, ...found]) {
      const mark = chart.contains(element) && element.closest("[role=graphics-symbol][aria-label]");
      const label = mark ? mark.getAttribute("aria-label") : "";
      if (!label.includes("; ")) continue; // nothing, an axis or a legend
      if (mark.getAttribute("aria-roledescription") !== "area mark") return label;
      area = area || label;
    }
  }
  return area;
}

function watchCharts() {
  const hide = () => (byId("tip").hidden = true);
  for (const kind of ["mousemove", "touchstart"]) {
    document.addEventListener(
      kind,
      (event) => {
        const over = (selector) => event.target.closest && event.target.closest(selector);
        const at = event.touches ? event.touches[0] : event;
        const chart = over(".chart");
        const label = chart && labelAt(chart, event.target, at.clientX, at.clientY);
        if (!label) return over(".tipped") ? null : hide();
        showTip(label.replaceAll("; ", "\n"), at.clientX, at.clientY);
      },
      { passive: true },
    );
  }
  document.addEventListener("mouseleave", hide);
}

// An element of a drawing; its text is set as text too.
function s(tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}
