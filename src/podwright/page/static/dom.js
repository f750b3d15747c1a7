// Elements, made safely: text is always text, never markup.
const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
export const link = (path, text) => h('a', { href: path }, text);

// What devices are kept for: a request of the server's queue, or a scheduler's job, which is named so.
export const whom = (name) => (name.startsWith('job ') ? name : `request ${name}`);

export function since(seconds) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min']];
  for (const [size, unit] of parts) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

export const time = (seconds) => h('time', { datetime: new Date(seconds * 1000).toISOString() },
  new Date(seconds * 1000).toLocaleString());

// Drawing anew takes a pressed button away, and its click with it. So drawing waits for the release.
let pressed = false;
let waiting = [];
addEventListener('pointerdown', ({ target }) => { pressed = Boolean(target.closest?.('button, a')); }, true);
for (const name of ['pointerup', 'pointercancel', 'blur']) {
  addEventListener(name, () => {
    pressed = false;
    setTimeout(() => { // the click comes behind the release
      const draws = waiting;
      waiting = [];
      for (const draw of draws) draw();
    });
  });
}
export function whenReleased(draw) {
  if (pressed) waiting.push(draw);
  else draw();
}
