// What was: the last hour or the last 30 days, and the pod as it was at a minute of them.
import { h, s, time } from './dom.js';
import { Pod } from './pod.js';

const SPANS = { hour: ['last hour', 3600, 60], day: ['last day', 86400, 600], month: ['last 30 days', 30 * 86400, 3600] };
const WIDE = 900, HIGH = 160;
// A point: time, used, free, waiting, down, failed, blocks of 1, 2, 4, ... that fit.
const [AT, USED, FREE, WAITING, DOWN, FAILED, FITS] = [0, 1, 2, 3, 4, 5, 6];

async function get(path, signal) {
  const answer = await fetch(path, { signal });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.problem ?? said.message ?? answer.statusText);
  return said;
}

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
    const span = h('select', { id: 'span', onchange: () => { this.span = span.value; this.keep(); this.load(); } },
      ...Object.entries(SPANS).map(([name, [text]]) => h('option', { value: name, selected: name === this.span }, text)));
    const size = h('select', { id: 'size', onchange: () => { this.size = Number(size.value); this.keep(); this.draw(); } },
      ...[1, 2, 4, 8, 16, 32, 64].map((value) => h('option', { value, selected: value === this.size }, String(value))));
    this.scrub = h('input', { id: 'scrub', type: 'range', step: 60, oninput: () => this.go(Number(this.scrub.value)) });
    this.command = h('code');
    host.replaceChildren(h('h1', {}, 'Time'),
      h('div', { class: 'controls' }, h('label', { for: 'span' }, 'Show the '), span,
        h('label', { for: 'size' }, 'Of no use for '), size,
        h('span', { class: 'quiet' }, 'the same: ', this.command)),
      this.chart,
      h('p', { class: 'controls' }, h('label', { for: 'scrub' }, 'Show the pod at '), this.scrub),
      this.said, this.plan);
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
      this.points = await get(path, this.asking.signal);
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
    const most = Math.max(1, ...points.map((point) => point[USED] + point[FREE] + point[DOWN]));
    const longest = Math.max(1, ...points.map((point) => point[WAITING]));
    const x = (at) => (at - this.since) / (this.until - this.since) * WIDE;
    const width = Math.max(1, this.step / (this.until - this.since) * WIDE + 0.3);
    const bars = points.flatMap((point) => {
      let y = HIGH;
      const useless = this.useless(point);
      return [['used', point[USED]], ['useless', useless], ['free', point[FREE] - useless]].map(([kind, value]) => {
        const height = value / most * HIGH;
        y -= height;
        return s('rect', { class: kind, x: x(point[AT]), y, width, height });
      });
    });
    const line = points.map((point, at) =>
      `${at && point[AT] - points[at - 1][AT] <= this.step ? 'L' : 'M'}${x(point[AT]) + width / 2} ${HIGH - point[WAITING] / longest * (HIGH - 4)}`);
    const failures = points.filter((point) => point[DOWN] || point[FAILED])
      .map((point) => s('rect', { class: 'failure', x: x(point[AT]), y: 0, width, height: 6 }));
    this.mark = s('line', { class: 'now', y1: 0, y2: HIGH });
    const mean = (pick) => (points.length
      ? Math.round(points.reduce((sum, point) => sum + pick(point), 0) / points.length) : 0);
    const words = `${SPANS[this.span][0]}: on average ${mean((p) => p[USED])} used, ${mean((p) => p[FREE])} free, `
      + `${mean((p) => this.useless(p))} of those of no use for ${this.size}; at most ${longest === 1 && !points.some((p) => p[WAITING]) ? 0 : longest} waited; `
      + `failures in ${failures.length} of ${points.length} steps`;
    const svg = s('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, role: 'img', 'aria-label': words,
      preserveAspectRatio: 'none', onclick: (event) => {
        const box = svg.getBoundingClientRect();
        this.go(this.since + Math.floor((event.clientX - box.left) / box.width * (this.until - this.since) / 60) * 60);
      } }, ...bars, s('path', { class: 'waiting', d: line.join(' ') }), ...failures, this.mark);
    const key = (name, kind) => h('span', { class: 'key' }, s('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
      s('rect', { class: kind, x: 1, y: 1, width: 12, height: 12 })), name);
    this.chart.replaceChildren(svg, h('p', { class: 'legend' }, key('used', 'used'), key('free', 'free'),
      key(`free, of no use for ${this.size}`, 'useless'), key(`waiting (up to ${Math.round(longest)})`, 'waiting-key'),
      key('failures', 'failure')), h('p', { class: 'quiet', id: 'summary' }, words));
    this.place(Number(this.scrub.value));
  }

  place(when) {
    const x = (when - this.since) / (this.until - this.since) * WIDE;
    this.mark?.setAttribute('x1', x);
    this.mark?.setAttribute('x2', x);
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
      const { topics } = await get(`/v1/history/at?time=${when}`, this.looking.signal);
      this.topicsThen = new Map(Object.entries(topics).map(([name, items]) => [name, new Map(Object.entries(items))]));
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.said.replaceChildren(time(when), `: ${error.message}`);
      this.plan.replaceChildren();
      this.pod = null;
      return;
    }
    const waits = this.source('waiters').size;
    this.said.replaceChildren('The pod at ', time(when), `: ${this.source('partitions').size} partitions, ${waits} waiting`);
    const shape = JSON.stringify([...this.source('clusters')]) + this.source('devices').size;
    if (this.pod && shape === this.shape) this.pod.paint();
    else {
      this.shape = shape;
      this.pod = new Pod(this.plan, new URLSearchParams(), { source: (name) => this.source(name), base: '', title: '' });
    }
  }

  source(name) {
    return this.topicsThen.get(name) ?? new Map();
  }
}
