// The last hour, below the map: how much was used and down, and a slider that shows the pod of a minute.
import { h, link, s, time } from './dom.js';
import { ask } from './session.js';

const LENGTH = 3600, WIDE = 600, HIGH = 20;
const [AT, USED, FREE, DOWN] = [0, 1, 2, 4]; // of a point

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
    this.said.replaceChildren(...(this.when ? ['the pod at ', time(this.when)] : ['the pod now']));
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
