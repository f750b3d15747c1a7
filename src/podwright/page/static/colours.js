// What a colour means. Every state of a device has its own colour and its own shape; partitions,
// users and jobs have eight hues that colour-blind people tell apart (Okabe and Ito's, without
// vermilion, which would look like a failure), and four hatches of each.
import { s } from './dom.js';

export const STATES = {
  FREE: 'free', IN_USE: 'in use', RESERVED: 'kept for a request', RESETTING: 'being reset',
  DRAINED: 'drained', DOWN: 'down',
};
const HUES = 8, HATCHES = 4;

// A number of HUES * HATCHES for each name, so that bordering ones differ in hue where that can be
// had. order: names as they lie on the pod. borders: name -> Set of names beside it. known: numbers
// given before, which stay unless they collide now; changed in place.
export function assign(order, borders, known) {
  for (const name of known.keys()) if (!borders.has(name)) known.delete(name);
  const used = new Map();
  const counts = new Map();
  for (const name of order) {
    const near = new Set([...borders.get(name)].filter((other) => used.has(other)).map((other) => used.get(other) % HUES));
    const taken = new Set(used.values());
    const free = (number) => !near.has(number % HUES) && !taken.has(number);
    let number = known.get(name);
    if (number === undefined || !free(number)) {
      const reserved = new Set([...known.values(), ...taken]);
      const all = [...Array(HUES * HATCHES).keys()];
      number = all.find((one) => free(one) && !reserved.has(one)) ?? all.find(free)
        ?? all.filter((one) => !near.has(one % HUES)).sort((a, b) => (counts.get(a) ?? 0) - (counts.get(b) ?? 0))[0]
        ?? order.indexOf(name) % all.length;
    }
    counts.set(number, (counts.get(number) ?? 0) + 1);
    used.set(name, number);
    known.set(name, number);
  }
  return known;
}

export const hueClass = (number) => `h${number % HUES} k${Math.floor(number / HUES) % HATCHES}`;

// Patterns that the style sheet fills devices with; one for each document.
export function patterns() {
  const line = (x1, y1, x2, y2) => s('line', { x1, y1, x2, y2 });
  const shape = (name, ...marks) => s('pattern', { id: `shape-${name}`, width: 1, height: 1,
    viewBox: '0 0 12 12', preserveAspectRatio: 'none' },
  s('rect', { class: 'ground', width: 12, height: 12 }), ...marks);
  // Marks that keep their proportions on a device that is wider than high.
  const mark = (name, ...marks) => s('pattern', { id: `shape-${name}`, width: 1, height: 1, viewBox: '0 0 12 12' },
    s('rect', { class: 'ground', x: -24, width: 60, height: 12 }), ...marks);
  const hatch = [[], [line(0, 12, 12, 0), line(-3, 3, 3, -3), line(9, 15, 15, 9)],
    [line(0, 4, 12, 4), line(0, 8, 12, 8)], [line(4, 0, 4, 12), line(8, 0, 8, 12)]];
  const hues = [...Array(HUES).keys()].flatMap((hue) => hatch.map((marks, kind) => {
    const found = shape(`h${hue}k${kind}`, ...marks.map((one) => one.cloneNode()));
    found.setAttribute('class', `hue h${hue}`);
    return found;
  }));
  return s('svg', { class: 'patterns', 'aria-hidden': 'true', width: 0, height: 0 }, s('defs', {},
    mark('RESERVED', s('circle', { cx: 6, cy: 6, r: 2.6 })),
    shape('RESETTING', line(0, 6, 6, 0), line(0, 12, 12, 0), line(6, 12, 12, 6)),
    shape('DRAINED', line(2, 6, 10, 6)),
    mark('DOWN', line(2, 2, 10, 10), line(10, 2, 2, 10)), ...hues));
}
