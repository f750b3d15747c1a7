// Which sizes still fit, what is left over for each, and what is kept for whom.
import { h, link } from './dom.js';

export function fragments(name, { free, sizes, kept }, chosen, choose) {
  const rows = sizes.map(([size, fits, useless]) => h('tr', { 'data-size': size },
    h('th', { scope: 'row' }, h('button', { 'aria-pressed': String(size === chosen),
      'data-focus': `size ${name} ${size}`, onclick: () => choose(size) }, String(size))),
    h('td', { class: 'number' }, fits ? String(fits) : 'none'),
    h('td', { class: 'number' }, String(useless))));
  const waits = Object.entries(kept).map(([waiter, count]) => h('li', {}, `${count} for `,
    waiter === '?' ? 'somebody' : link(`/line?find=${encodeURIComponent(waiter)}`, `request ${waiter}`)));
  return h('section', { 'aria-label': `What still fits in ${name}` },
    h('h2', {}, `What still fits in ${name}`),
    h('div', { class: 'wide' }, h('table', { class: 'narrow' },
      h('caption', {}, `${free} devices are free`),
      h('thead', {}, h('tr', {}, ...['Size', 'So many fit', 'Free, but of no use for it']
        .map((text) => h('th', { scope: 'col' }, text)))), h('tbody', {}, ...rows))),
    ...(waits.length ? [h('h3', {}, 'Kept'), h('ul', {}, ...waits)] : []),
    h('p', { class: 'quiet' }, 'the same: ', h('code', {}, `curl ${location.origin}/v1/fragments`)));
}
