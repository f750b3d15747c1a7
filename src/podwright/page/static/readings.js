// What drivers measured over a time: use, temperature, power and errors, a small chart for each.
import { h, s } from './dom.js';

export const WIDE = 900, HIGH = 160;
const LOW = 60; // the height of a small chart
const MEASURED = 7; // of a point
// By place in what was measured: the title, the unit, the least top of the axis.
const CHARTS = [['Mean use of the devices', '%', 100], ['Hottest device', '°C', 100], ['Power of all devices', 'W', 100],
  ['Devices that report errors', '', 4]];

// Charts of what some point has. Each has a method `at`, which shows the value of a time.
export function measures(points, { since, until, step }) {
  const x = (at) => (at + step / 2 - since) / (until - since) * WIDE;
  return CHARTS.flatMap(([title, unit, least], place) => {
    const known = points.filter((point) => typeof point[MEASURED]?.[place] === 'number');
    if (!known.length) return [];
    const values = known.map((point) => point[MEASURED][place]);
    const top = round(Math.max(least, ...values));
    const y = (value) => LOW - 2 - value / top * (LOW - 4);
    const d = known.map((point, at) =>
      `${at && point[0] - known[at - 1][0] <= step ? 'L' : 'M'}${x(point[0]).toFixed(1)} ${y(values[at]).toFixed(1)}`);
    // A point that stands alone is a dot: the line has round ends, and is one pixel long.
    const alone = known.map((point) => `M${x(point[0]).toFixed(1)} ${y(point[MEASURED][place]).toFixed(1)}h.1`);
    const named = (value) => (unit === 'W' && top >= 10000 ? `${(value / 1000).toFixed(1)} kW`
      : `${Math.round(value)}${unit && ` ${unit}`}`);
    const now = h('strong', {});
    const words = `${title}: ${named(Math.min(...values))} to ${named(Math.max(...values))}`;
    const chart = h('div', { class: 'reading' }, h('p', {}, `${title} `, now,
      h('span', { class: 'quiet' }, ` from ${named(Math.min(...values))} to ${named(Math.max(...values))}`)),
    h('div', { class: 'plot' },
      h('div', { class: 'axis', 'aria-hidden': 'true' }, h('span', {}, named(top)), h('span', {}, '0')),
      s('svg', { viewBox: `0 0 ${WIDE} ${LOW}`, role: 'img', 'aria-label': words, preserveAspectRatio: 'none' },
        s('path', { class: place === 3 ? 'reading-line errors' : 'reading-line', d: [...d, ...alone].join(' ') }),
        s('line', { class: 'now', y1: 0, y2: LOW }))));
    chart.at = (when) => {
      const point = points.findLast((one) => one[0] <= when && when < one[0] + step);
      const value = point?.[MEASURED]?.[place];
      now.textContent = typeof value === 'number' ? named(value) : 'not known';
    };
    return [chart];
  });
}

// The next round number.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}
