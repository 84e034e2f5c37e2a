// Charts are drawings in the page. Each mark carries its numbers as a label, which is shown under the pointer.

// "accuracy: 0.319462; class: frog; value: 31.9%" without the numbers that are there again in a readable form.
function marked(label) {
  return label.split("; ").filter((part) => !/: -?\d*\.\d{4,}%?$/.test(part)).join("\n");
}

function watchCharts() {
  const tip = byId("tip");
  const hide = () => (tip.hidden = true);
  document.querySelectorAll(".chart").forEach((chart) => {
    chart.addEventListener("mousemove", (event) => {
      const mark = event.target.closest("[role=graphics-symbol][aria-label]");
      if (!mark || !mark.getAttribute("aria-label").includes("; ")) return hide();
      tip.textContent = marked(mark.getAttribute("aria-label"));
      tip.hidden = false;
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    });
    chart.addEventListener("mouseleave", hide);
  });
}
