// The last hour, below the map: how much was used and down, and a slider that shows the pod of a minute.
import { h, link, s, time } from './dom.js';
import { ask } from './session.js';

const LENGTH = 3600, WIDE = 600, HIGH = 20;
const [AT, USED, FREE, DOWN, FAILED] = [0, 1, 2, 4, 5]; // of a point

// When devices were down or partitions in error, in words.
export function failures(points, step, day) {
  const label = (at) => new Date(at * 1000).toLocaleString([],
    { ...(day ? { month: 'short', day: 'numeric' } : {}), hour: '2-digit', minute: '2-digit' });
  const runs = [];
  for (const point of points) {
    if (!point[DOWN] && !point[FAILED]) continue;
    const last = runs.at(-1);
    const run = last && point[AT] === last.end ? last : { start: point[AT], down: 0, failed: 0 };
    if (run !== last) runs.push(run);
    Object.assign(run, { end: point[AT] + step, down: Math.max(run.down, point[DOWN]), failed: Math.max(run.failed, point[FAILED]) });
  }
  if (!runs.length) return 'nothing failed';
  const many = (count, what) => `${count} ${what}${count > 1 ? 's' : ''}`;
  const told = runs.slice(-3).map(({ start, end, down, failed }) => `${[down && `${many(down, 'device')} down`,
    failed && `${many(failed, 'partition')} in error`].filter(Boolean).join(' and ')} from ${label(start)} to ${label(end)}`);
  return `failures: ${told.join('; ')}${runs.length > 3 ? `, and ${runs.length - 3} times before` : ''}`;
}

export class Hour {
  // show: called with what was at a minute, by topic; null: with what is. when: the minute to begin with.
  constructor(show, when) {
    Object.assign(this, { show, when });
    this.chart = s('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'used in the last hour' });
    this.scrub = h('input', { id: 'hour', type: 'range', step: 60, oninput: () => this.go(Number(this.scrub.value)) });
    this.said = h('output', { for: 'hour' });
    this.back = h('button', { onclick: () => this.go(this.last) }, 'Now');
    this.host = h('section', { class: 'hour', 'aria-label': 'The last hour', hidden: true },
      h('label', { for: 'hour' }, 'Last hour'), h('div', {}, this.chart, this.scrub), this.said, this.back, link('/time', 'day and month'));
    this.load().then(() => { if (this.when) this.go(this.when); });
    this.timer = setInterval(() => this.load(), 60000);
  }

  close() {
    clearInterval(this.timer);
    this.looking?.abort();
  }

  async load() {
    this.last = Math.floor(Date.now() / 60000) * 60;
    const since = this.last - LENGTH;
    let points;
    try {
      points = await ask(`/v1/history?since=${since}&until=${this.last}&step=60`);
    } catch {
      return; // this server writes no history, or the head says that it does not answer
    }
    this.host.hidden = !points.length;
    this.failed = failures(points, 60, false);
    const most = Math.max(1, ...points.map((point) => point[USED] + point[FREE] + point[DOWN]));
    const x = (at) => (at - since) / LENGTH * WIDE;
    this.chart.replaceChildren(...points.flatMap((point) => {
      const [used, down] = [point[USED], point[DOWN]].map((value) => value / most * HIGH);
      return [s('rect', { class: 'used', x: x(point[AT]), y: HIGH - used, width: 10.3, height: used }),
        ...(down ? [s('rect', { class: 'failure', x: x(point[AT]), y: 0, width: 10.3, height: down }) ] : [])];
    }));
    Object.assign(this.scrub, { min: Math.min(since, this.when || since), max: this.last });
    this.scrub.value = this.when || this.last;
    this.say();
  }

  say() {
    this.scrub.setAttribute('aria-valuetext', this.when ? new Date(this.when * 1000).toLocaleString() : 'now');
    this.said.replaceChildren(...(this.when ? ['the pod at ', time(this.when)] : [this.failed]));
    this.back.disabled = !this.when;
  }

  async go(when) {
    this.when = when < this.last ? when : 0;
    this.scrub.value = this.when || this.last;
    this.looking?.abort();
    this.looking = new AbortController();
    this.say();
    if (!this.when) {
      this.show(null);
      return;
    }
    try {
      const { topics } = await ask(`/v1/history/at?time=${when}`, { signal: this.looking.signal });
      this.show(new Map(Object.entries(topics).map(([name, items]) => [name, new Map(Object.entries(items))])));
    } catch (error) {
      if (error.name !== 'AbortError') this.said.replaceChildren(time(when), `: ${error.message}`);
    }
  }
}
