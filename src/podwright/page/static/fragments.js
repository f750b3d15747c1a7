// Which sizes still fit, what is left over for each, and what is kept for whom.
import { h, link, whom } from './dom.js';

export function fragments(name, { free, sizes, kept }, chosen, choose) {
  const heads = sizes.map(([size]) => h('th', { scope: 'col', 'data-size': size },
    h('button', { 'aria-pressed': String(size === chosen), 'data-focus': `size ${name} ${size}`,
      onclick: () => choose(size) }, String(size))));
  const row = (title, pick) => h('tr', {}, h('th', { scope: 'row' }, title),
    ...sizes.map((one) => h('td', { class: 'number', 'data-size': one[0] }, String(pick(one)))));
  const waits = Object.entries(kept).map(([waiter, count]) => h('li', {}, `${count} for `,
    waiter === '?' ? 'somebody' : whom(waiter) === waiter ? waiter
      : link(`/line?find=${encodeURIComponent(waiter)}`, whom(waiter))));
  return h('section', { 'aria-label': `What still fits in ${name}` },
    h('h2', {}, `What still fits in ${name}`),
    h('div', { class: 'wide' }, h('table', { class: 'narrow' },
      h('caption', {}, `Of ${free} free devices, so many partitions fit at once:`),
      h('thead', {}, h('tr', {}, h('th', { scope: 'row' }, 'Size'), ...heads)),
      h('tbody', {}, row('Fit', ([, fits]) => fits), row('Spare', ([, , useless]) => useless)))),
    ...(waits.length ? [h('h3', {}, 'Kept'), h('ul', {}, ...waits)] : []),
    h('p', { class: 'quiet' }, 'the same: ', h('code', {}, `curl ${location.origin}/v1/fragments`)));
}
