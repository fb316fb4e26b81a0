// Creates elements. Text is never parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "share") element.style.setProperty("--share", value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

export const letter = (index) =>
  index < 26 ? String.fromCharCode(65 + index) : letter(Math.floor(index / 26) - 1) + letter(index % 26);

// Six colours, repeated; the letters tell operands apart.
export const colour = (index) => `c${index % 6}`;

export function ordinal(n) {
  const ending = { 1: "st", 2: "nd", 3: "rd" }[n % 10];
  return `${n}${ending && ![11, 12, 13].includes(n % 100) ? ending : "th"}`;
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
