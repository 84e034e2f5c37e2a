// Marks of charts carry their numbers as a label, which is shown under the pointer, and under the finger that touches them.

function showTip(text, x, y) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 14 + tip.offsetHeight > innerHeight ? y - 10 - tip.offsetHeight : y + 14}px`;
  (document.querySelector("dialog[open]") || document.body).append(tip); // what is modal covers everything else
}

function watchCharts() {
  const hide = () => (byId("tip").hidden = true);
  for (const kind of ["mousemove", "touchstart"]) {
    document.addEventListener(
      kind,
      (event) => {
        const mark = event.target.closest && event.target.closest(".chart [role=graphics-symbol][aria-label]");
        if (!mark || !mark.getAttribute("aria-label").includes("; ")) return event.target.closest && event.target.closest(".tipped") ? null : hide();
        const at = event.touches ? event.touches[0] : event;
        showTip(mark.getAttribute("aria-label").replaceAll("; ", "\n"), at.clientX, at.clientY);
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
