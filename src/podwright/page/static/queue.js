// Who waits, for what and why, beside the pod: people, and the jobs of each scheduler.
import { h, link, since, time } from './dom.js';

const SHOWN = 8; // of all together
const LEAST = 2; // of each guest
const ago = (seconds) => since(Date.now() / 1000 - seconds);

// An entry for each line: tasks of a job array that follow each other are one, unless a place is kept.
function joined(entries) {
  const lines = [];
  for (const [key, item] of entries) {
    const [array, task] = (item.job ?? '').split('_');
    const last = lines.at(-1);
    if (task && last?.array === array && !item.reserved) last.more += 1;
    else lines.push({ key, item, array: task && !item.reserved ? array : '', more: 0 });
  }
  return lines;
}

export class Queue {
  constructor(source) {
    this.source = source;
    this.host = h('section', { class: 'queue', 'aria-label': 'Who waits' });
    this.draw();
  }

  draw() {
    // Each guest has an order of its own.
    const guests = new Map();
    const add = (guest, key, item) => guests.set(guest, [...(guests.get(guest) ?? []), [key, item]]);
    for (const [key, waiter] of this.source('waiters')) add('people', key, waiter);
    for (const [key, job] of this.source('jobs')) add(job.scheduler ?? 'jobs', key, job);
    for (const entries of guests.values()) entries.sort(([, a], [, b]) => a.place - b.place);
    const shown = JSON.stringify([[...guests], Math.floor(Date.now() / 60000)]);
    if (shown === this.shown) return;
    this.shown = shown;
    const most = Math.max(LEAST, Math.floor(SHOWN / guests.size));
    const count = [...guests.values()].flat().length;
    const lines = new Map([...guests].map(([guest, entries]) => [guest, joined(entries)]));
    const hidden = [...lines.values()].some((found) => found.length > most);
    this.host.replaceChildren(h('h2', {}, 'Who waits'),
      ...[...lines].flatMap(([guest, found]) => [
        ...(guests.size > 1 || guest !== 'people' ? [h('h3', {}, guest)] : []),
        h('ol', { 'aria-label': guest }, ...found.slice(0, most).map((one) => this.line(one)))]),
      ...(hidden ? [h('p', {}, link('/line', `all ${count}`))] : []),
      ...(count ? [h('p', { class: 'quiet' }, 'the same: ', h('code', {}, 'vipu list queue'))]
        : [h('p', { class: 'quiet' }, 'Nobody waits.')]));
  }

  line({ key, item, more }) {
    return h('li', item.place ? { value: item.place } : {}, h('strong', {}, item.owner || 'somebody'),
      `: ${item.job ? `job ${item.job}${more ? ` and ${more} more tasks` : ''}, ` : ''}${item.asked}`,
      h('div', { class: 'quiet' }, item.needs || (item.state ?? '').toLowerCase(),
        `; waits ${ago(item.since)}`, ...(item.starts ? ['; can start ', time(item.starts)] : []),
        ...(item.reserved ? [`; ${item.reserved} devices are kept for it`] : [])),
      ...(item.scheduler && !item.reserved ? []
        : [link(`/pod?way=${encodeURIComponent(key)}`, item.scheduler ? 'show its place' : 'why it waits')]));
  }
}
