// Elements, numbers and words. Text is only ever set as text: no name from the data is read as markup.

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);
const known = (value) => value !== null && value !== undefined;
// The rule of classwise/core/format.py: a share is rounded once, and is written as 0% or 100% only if it is.
function percent(value, digits = 1) {
  if (!known(value)) return "–";
  const text = (100 * value).toFixed(digits);
  const least = 10 ** -digits;
  if (value > 0 && Number(text) === 0) return `<${least.toFixed(digits)}%`;
  if (value < 1 && Number(text) === 100) return `>${(100 - least).toFixed(digits)}%`;
  return `${text}%`;
}
const count = (value) => value.toLocaleString("en");
const plural = (number, word, many = `${word}s`) => `${count(number)} ${number === 1 ? word : many}`;

// For screen readers only.
function announce(text) {
  byId("announcer").textContent = text;
}
