// Light and dark: by the button, kept for the next page; by the system until then.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  try {
    localStorage.setItem("classwise-theme", theme);
  } catch {
    // a browser may store nothing for pages opened from disk
  }
}

// changed: called after every change of the theme.
function startTheme(changed) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try {
    kept = localStorage.getItem("classwise-theme");
  } catch {
    kept = null;
  }
  const now = () => document.documentElement.dataset.theme || (system.matches ? "dark" : "light");
  if (kept === "dark" || kept === "light") setTheme(kept);
  byId("theme").setAttribute("aria-pressed", String(now() === "dark"));
  byId("theme").addEventListener("click", () => {
    setTheme(now() === "dark" ? "light" : "dark");
    changed();
  });
  system.addEventListener("change", () => changed());
}
