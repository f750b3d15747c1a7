// Who waits, for what and why, beside the pod: the first of the queue and of Slurm's jobs.
import { h, link, since, time } from './dom.js';

const SHOWN = 8;
const ago = (seconds) => since(Date.now() / 1000 - seconds);

export class Queue {
  constructor(source) {
    this.source = source;
    this.host = h('section', { class: 'queue', 'aria-label': 'Who waits' });
    this.draw();
  }

  draw() {
    const waiters = [...this.source('waiters')].sort(([, a], [, b]) => a.place - b.place);
    const jobs = [...this.source('jobs').values()].sort((a, b) => a.place - b.place);
    const shown = JSON.stringify([waiters, jobs, Math.floor(Date.now() / 60000)]);
    if (shown === this.shown) return;
    this.shown = shown;
    const lines = [...waiters.map(([key, w]) => h('li', {}, h('strong', {}, w.owner || 'somebody'), `: ${w.asked}`,
      h('div', { class: 'quiet' }, w.needs || w.state.toLowerCase(),
        `; waits ${ago(w.since)}`, ...(w.starts ? ['; can start ', time(w.starts)] : []),
        ...(w.reserved ? [`; ${w.reserved} devices are kept for it`] : [])),
      link(`/pod?way=${encodeURIComponent(key)}`, 'show what is in the way'))),
    ...jobs.map((j) => h('li', {}, h('strong', {}, j.owner || 'somebody'), `: ${j.scheduler} job ${j.job}, ${j.asked}`,
      h('div', { class: 'quiet' }, `${j.needs}; waits ${ago(j.since)}`)))];
    this.host.replaceChildren(h('h2', {}, 'Who waits'), ...(lines.length
      ? [h('ol', {}, ...lines.slice(0, SHOWN)),
        ...(lines.length > SHOWN ? [h('p', {}, link('/line', `all ${lines.length}`))] : [])]
      : [h('p', { class: 'quiet' }, 'Nobody waits.')]));
  }
}
