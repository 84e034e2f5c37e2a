// Charts are drawings in the page. Marks carry their numbers as a label, which is shown under the pointer.

function watchCharts() {
  const tip = byId("tip");
  const hide = () => (tip.hidden = true);
  document.querySelectorAll(".chart").forEach((chart) => {
    chart.addEventListener("mousemove", (event) => {
      const mark = event.target.closest("[role=graphics-symbol][aria-label]");
      if (!mark || !mark.getAttribute("aria-label").includes("; ")) return hide();
      tip.textContent = mark.getAttribute("aria-label").replaceAll("; ", "\n");
      tip.hidden = false;
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    });
    chart.addEventListener("mouseleave", hide);
  });
}
