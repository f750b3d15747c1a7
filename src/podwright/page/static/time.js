// What was: the last hour or the last 30 days, and the pod as it was at a minute of them.
import { h, s, time } from './dom.js';
import { deviceCount, total } from './folded.js';
import { failures } from './hour.js';
import { Pod } from './pod.js';
import { HIGH, WIDE, measures } from './readings.js';
import { ask } from './session.js';

const SPANS = { hour: ['last hour', 3600, 60], day: ['last day', 86400, 600], month: ['last 30 days', 30 * 86400, 3600] };
// A point: time, used, free, waiting, down, failed, blocks of 1, 2, 4, ... that fit, and what drivers
// measured, if they did: mean use, highest temperature, power and devices with errors.
const [AT, USED, FREE, WAITING, DOWN, FAILED, FITS] = [0, 1, 2, 3, 4, 5, 6];

export class Time {
  title = 'Time';
  topics = [];

  constructor(host, address) {
    this.span = address.get('span') in SPANS ? address.get('span') : 'hour';
    this.size = Number(address.get('size')) || 16;
    this.when = Number(address.get('at')) || 0;
    this.topicsThen = new Map();
    this.said = h('p', { role: 'status', id: 'then' }, 'loading …');
    this.chart = h('div', { class: 'chart' });
    this.plan = h('div', { id: 'was' });
    this.readings = h('div', { class: 'readings' });
    const span = h('select', { id: 'span', onchange: () => { this.span = span.value; this.keep(); this.load(); } },
      ...Object.entries(SPANS).map(([name, [text]]) => h('option', { value: name, selected: name === this.span }, text)));
    const size = h('select', { id: 'size', onchange: () => { this.size = Number(size.value); this.keep(); this.draw(); } },
      ...[1, 2, 4, 8, 16, 32, 64].map((value) => h('option', { value, selected: value === this.size }, String(value))));
    this.scrub = h('input', { id: 'scrub', type: 'range', step: 60, oninput: () => this.go(Number(this.scrub.value)) });
    this.command = h('code');
    host.replaceChildren(h('h1', {}, 'Time'),
      h('div', { class: 'controls' }, h('label', { for: 'span' }, 'Show the '), span,
        h('label', { for: 'size' }, 'Blocks of '), size,
        h('span', { class: 'quiet' }, 'the same: ', this.command)),
      h('div', { class: 'times' }, h('div', {}, this.chart,
        h('p', { class: 'controls' }, h('label', { for: 'scrub' }, 'Show the pod at '), this.scrub), this.said, this.readings),
      this.plan));
    this.load();
    this.timer = setInterval(() => { if (!this.when) this.load(); }, 60000);
  }

  keep() {
    const query = new URLSearchParams();
    if (this.span !== 'hour') query.set('span', this.span);
    if (this.size !== 16) query.set('size', this.size);
    if (this.when) query.set('at', this.when);
    history.replaceState(null, '', `/time${query.size ? `?${query}` : ''}`);
  }

  update() {}

  close() {
    clearInterval(this.timer);
    this.asking?.abort();
    this.looking?.abort();
    this.pod?.close();
  }

  async load() {
    const [, length, step] = SPANS[this.span];
    const end = this.when && this.when < Date.now() / 1000 - length ? this.when + length / 2 : Date.now() / 1000;
    this.until = (Math.floor(end / 60) + 1) * 60;
    this.since = this.until - length;
    this.step = step;
    const path = `/v1/history?since=${this.since}&until=${this.until - 60}&step=${step}`;
    this.command.textContent = `curl '${location.origin}${path}'`;
    this.asking?.abort();
    this.asking = new AbortController();
    try {
      this.points = await ask(path, { signal: this.asking.signal });
    } catch (error) {
      if (error.name !== 'AbortError') this.said.replaceChildren(error.message);
      return;
    }
    const last = this.points.at(-1);
    Object.assign(this.scrub, { min: this.since, max: this.until - 60 });
    this.scrub.value = this.when || (last ? last[AT] : this.until - 60);
    this.draw();
    if (last || this.when) this.go(this.when || (step === 60 ? last[AT] : this.until - 120), !this.when);
    else this.said.replaceChildren('Nothing is written down yet: each full minute is.');
  }

  useless(point) {
    const order = Math.log2(this.size);
    return Math.max(0, Math.min(point[FREE], point[FREE] - (point[FITS][order] ?? 0) * this.size));
  }

  draw() {
    const points = this.points ?? [];
    // What is neither used, free nor down is kept for a request, being reset or drained.
    const sum = (point) => point[USED] + point[FREE] + point[DOWN];
    const most = Math.max(1, deviceCount(), ...points.map(sum));
    const outside = (point) => Math.max(0, most - sum(point));
    const waited = Math.max(0, ...points.map((point) => point[WAITING]));
    const longest = Math.max(4, Math.ceil(waited / 4) * 4); // four steps of whole requests
    const x = (at) => (at - this.since) / (this.until - this.since) * WIDE;
    const width = Math.max(1, this.step / (this.until - this.since) * WIDE + 0.3);
    const bars = points.flatMap((point) => {
      let y = HIGH;
      const useless = this.useless(point);
      return [['used', point[USED]], ['outside', outside(point)], ['failure', point[DOWN]],
        ['useless', useless], ['free', point[FREE] - useless]].map(([kind, value]) => {
        const height = value / most * HIGH;
        y -= height;
        return s('rect', { class: kind, x: x(point[AT]), y, width, height });
      });
    });
    const line = points.map((point, at) =>
      `${at && point[AT] - points[at - 1][AT] <= this.step ? 'L' : 'M'}${x(point[AT]) + width / 2} ${HIGH - point[WAITING] / longest * (HIGH - 4)}`);
    const errors = points.filter((point) => point[FAILED])
      .map((point) => s('rect', { class: 'failure', x: x(point[AT]), y: 0, width, height: 5 }));
    this.mark = s('line', { class: 'now', y1: 0, y2: HIGH });
    const mean = (pick) => (points.length
      ? Math.round(points.reduce((sum, point) => sum + pick(point), 0) / points.length) : 0);
    const words = `${SPANS[this.span][0]}: on average ${mean((p) => p[USED])} used, ${mean((p) => p[FREE])} free (${mean((p) => this.useless(p))} of these in no block of ${this.size}), `
      + `${mean(outside)} kept, being reset or drained, ${mean((p) => p[DOWN])} down; at most ${Math.round(waited)} waited; `
      + failures(points, this.step, this.until - this.since > 86400);
    const svg = s('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, role: 'img', 'aria-label': words,
      preserveAspectRatio: 'none', onclick: (event) => {
        const box = svg.getBoundingClientRect();
        this.go(this.since + Math.floor((event.clientX - box.left) / box.width * (this.until - this.since) / 60) * 60);
      } }, ...bars, ...[1, 2, 3].map((at) => s('line', { class: 'grid', x1: 0, x2: WIDE, y1: HIGH * at / 4, y2: HIGH * at / 4 })),
    s('path', { class: 'halo', d: line.join(' ') }), s('path', { class: 'waiting', d: line.join(' ') }), ...errors, this.mark);
    const parts = [4, 3, 2, 1, 0];
    const day = this.until - this.since > 86400;
    const label = (at) => new Date(at * 1000).toLocaleString([], day
      ? { month: 'short', day: 'numeric' } : { hour: '2-digit', minute: '2-digit' });
    const axis = (across, labels, title) => h('div', { class: across ? 'axis across' : 'axis', 'aria-hidden': 'true',
      title }, ...labels.map((text) => h('span', {}, String(text))));
    const plot = h('div', { class: 'plot' },
      axis(false, parts.map((at) => Math.round(most * at / 4)), 'devices'), svg,
      axis(false, parts.map((at) => longest * at / 4), 'requests that wait'),
      axis(true, parts.map((at) => label(this.until - (this.until - this.since) * at / 4)), 'time'));
    const key = (name, kind) => h('span', { class: 'key' }, s('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
      s('rect', { class: kind, x: 1, y: 1, width: 12, height: 12 })), name);
    this.chart.replaceChildren(h('p', { class: 'quiet' }, 'Left: devices. Right: requests that wait.'), plot,
      h('p', { class: 'legend' }, key('used', 'used'), key('free', 'free'),
      key(`free, but in no block of ${this.size}`, 'useless'), key('kept, being reset or drained', 'outside'), h('span', { class: 'key' }, s('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
        s('path', { class: 'waiting', d: 'M0 7h14' })), `requests that wait (up to ${Math.round(waited)})`),
      key('down; above: partitions in error', 'failure')), h('p', { class: 'quiet', id: 'summary' }, words));
    this.readings.replaceChildren(...measures(points, { since: this.since, until: this.until, step: this.step }));
    this.place(Number(this.scrub.value));
  }

  place(when) {
    const x = (when - this.since) / (this.until - this.since) * WIDE;
    for (const mark of [this.mark, ...this.readings.querySelectorAll('line.now')]) {
      mark?.setAttribute('x1', x);
      mark?.setAttribute('x2', x);
    }
    for (const line of this.readings.querySelectorAll('.reading')) line.at?.(when);
  }

  // The pod of that minute; latest: nobody chose it, so the address says nothing of it.
  async go(when, latest = false) {
    this.when = latest ? 0 : when;
    this.scrub.value = when;
    this.scrub.setAttribute('aria-valuetext', new Date(when * 1000).toLocaleString());
    this.place(when);
    this.keep();
    this.looking?.abort();
    this.looking = new AbortController();
    try {
      const { topics } = await ask(`/v1/history/at?time=${when}`, { signal: this.looking.signal });
      this.topicsThen = new Map(Object.entries(topics).map(([name, items]) => [name, new Map(Object.entries(items))]));
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.said.replaceChildren(time(when), `: ${error.message}`);
      this.plan.replaceChildren();
      this.pod?.close();
      this.pod = null;
      return;
    }
    const waits = this.source('waiters').size + this.source('jobs').size;
    this.said.replaceChildren('The pod at ', time(when), `: ${total('partitions', (name) => this.source(name))} partitions, ${waits} waiting`);
    const shape = JSON.stringify([...this.source('clusters')]) + this.source('devices').size;
    if (this.pod && shape === this.shape) {
      this.pod.opened.again();
      this.pod.paint();
    } else {
      this.shape = shape;
      this.pod?.close();
      this.pod = new Pod(this.plan, new URLSearchParams(), { source: (name) => this.source(name), base: '', title: '',
        details: (domain) => `/v1/history/at?time=${this.scrub.value}&domain=${encodeURIComponent(domain)}` });
    }
  }

  source(name) {
    return this.topicsThen.get(name) ?? new Map();
  }
}
