// The pod as it stands in its racks: link domains, machines, devices.
import { colour, h, link, s, since } from './dom.js';
import { fragments } from './fragments.js';
import { topic } from './live.js';

const SIDE = 17, GAP = 3, NAME = 92;
const FOLD = 2048; // devices from which on link domains are drawn folded

const BY = {
  partition: (device, partition) => device[3],
  user: (device, partition) => partition?.owner ?? '',
  job: (device, partition) => partition?.job ?? '',
  load: (device, partition, lease) => (partition ? (lease ? 'a program holds it' : 'no program holds it') : ''),
  state: () => '',
};

function words(key, device, partition, lease) {
  const [cluster, domain, offset] = key.split('/');
  const text = [`device ${offset} of link domain ${domain}, ${cluster}: ${device[0]} index ${device[1]}`];
  if (partition) {
    text.push(`${device[2].toLowerCase()} by partition ${device[3]}`
      + (partition.owner ? ` of ${partition.owner}` : ''));
    if (partition.job) text.push(`job ${partition.job}`);
    text.push(`since ${new Date(partition.created * 1000).toLocaleString()}`);
    if (partition.until) text.push(`until ${new Date(partition.until * 1000).toLocaleString()}`);
    if (lease) text.push(`held by ${lease.holder || lease.owner}`);
    if (lease?.move) text.push('asked to move');
  } else if (device[3]) text.push(`${device[2].toLowerCase()} by partition ${device[3]}`);
  else text.push(device[2].toLowerCase().replace('_', ' '));
  if (device[5]) text.push(`kept for request ${device[5]}`);
  return text.join(', ');
}

export class Pod {
  title = 'Pod';
  topics = ['clusters', 'devices', 'partitions', 'machines', 'leases', 'waiters', 'moves'];

  // source: where topics come from; base: the address that keeps the choices, none: nowhere.
  constructor(host, address, { source = topic, base = '/pod', title = 'Pod' } = {}) {
    Object.assign(this, { source, base });
    this.by = address.get('by') in BY ? address.get('by') : 'partition';
    this.find = address.get('find') ?? '';
    this.cells = new Map();
    this.open = new Set();
    this.size = Number(address.get('size')) || 16;
    this.way = base ? address.get('way') ?? '' : '';
    this.inWay = new Set();
    this.waySaid = h('div', { id: 'way', role: 'status' });
    this.sizes = h('div', { class: 'sizes' });
    this.moving = h('div', { id: 'moving', role: 'status' });
    this.numbers = h('dl', { class: 'numbers' });
    this.legend = h('p', { class: 'legend' });
    this.about = h('p', { id: 'about', role: 'status' });
    this.plan = h('div', { class: 'pod' });
    const choose = h('select', { id: 'by', onchange: () => { this.by = choose.value; this.keep(); this.draw(); } },
      ...Object.keys(BY).map((name) => h('option', { value: name, selected: name === this.by }, name)));
    const find = h('input', { id: 'find', type: 'search', value: this.find,
      oninput: () => { this.find = find.value; this.keep(); this.paint(); } });
    host.replaceChildren(...(title ? [h('h1', {}, title)] : []), this.numbers,
      h('div', { class: 'controls' },
        h('label', { for: 'by' }, 'Colour by '), choose,
        h('label', { for: 'find' }, 'Show only '), find,
        h('span', { class: 'quiet' }, 'the same: ', h('code', {}, 'vipu list devices'))),
      this.waySaid, this.legend, this.plan, this.about, this.moving, this.sizes);
    this.plan.addEventListener('keydown', (event) => this.move(event));
    this.draw();
    this.stands();
  }

  keep() {
    if (!this.base) return;
    const query = new URLSearchParams();
    if (this.by !== 'partition') query.set('by', this.by);
    if (this.find) query.set('find', this.find);
    if (this.size !== 16) query.set('size', this.size);
    if (this.way) query.set('way', this.way);
    history.replaceState(null, '', `${this.base}${query.size ? `?${query}` : ''}`);
  }

  update(changed) {
    if (changed.has('clusters') && this.shape !== this.shapeNow()) this.draw();
    else this.paint();
    if (changed.has('partitions') || changed.has('waiters')) this.stands();
  }

  // What stands in the way of a request, marked on the plan and told in words.
  async stands() {
    if (!this.way || !this.source('clusters').size) return;
    this.old = Boolean(this.asking); // what is asked now may be answered as of before
    if (this.asking) return;
    this.asking = true;
    let said;
    if (!this.source('waiters').has(this.way)) said = { lines: ['It waits no more.'] };
    else try {
      const answer = await fetch(`/v1/explain?name=${encodeURIComponent(this.way)}`);
      said = await answer.json();
      if (!answer.ok) said = { lines: [said.problem ?? said.message] };
    } catch (error) {
      said = { lines: [error.message] };
    }
    this.asking = false;
    if (this.old) { this.stands(); return; }
    this.inWay = new Set([...(said.partitions ?? []).map((one) => `p ${one.partition}`),
      ...[...(said.down ?? []), ...(said.drained ?? [])].map((name) => `m ${name}`)]);
    this.waySaid.replaceChildren(h('h2', {}, `In the way of request ${this.way}`),
      ...(said.problem ? [h('p', {}, said.problem)] : []),
      h('ul', {}, ...(said.lines ?? []).map((line) => h('li', {}, line))),
      h('p', { class: 'quiet' }, 'the same: ', h('code', {}, `vipu explain ${this.way}`), ' · ',
        link('/pod', 'show it no more')));
    this.paint();
  }

  shapeNow() {
    return JSON.stringify([...this.source('clusters')].map(([name, c]) => [name, c.domains])) + this.source('devices').size;
  }

  draw() {
    this.shape = this.shapeNow();
    this.cells.clear();
    this.heads = new Map();
    const places = new Map();
    for (const [key, device] of this.source('devices')) {
      const domain = key.slice(0, key.lastIndexOf('/'));
      if (!places.has(domain)) places.set(domain, new Map());
      const machines = places.get(domain);
      if (!machines.has(device[0])) machines.set(device[0], []);
      machines.get(device[0]).push(key);
    }
    const fold = this.source('devices').size > FOLD;
    const clusters = [...this.source('clusters')].map(([name, cluster]) => h('section', {},
      h('h2', {}, `${name} · ${cluster.family}`, cluster.simulated ? ' · simulated' : ''),
      h('div', { class: 'domains' }, ...[...places].filter(([at]) => at.startsWith(`${name}/`))
        .map(([at, machines]) => this.domain(at, machines, fold)))));
    this.plan.replaceChildren(...(clusters.length ? clusters
      : [h('p', {}, 'There is no cluster yet: ', h('code', {}, 'vipu-admin create cluster'), ' makes one.')]));
    this.paint();
  }

  domain(at, machines, fold) {
    const [, index] = at.split('/');
    const head = h('h3', {}, `Link domain ${index}`);
    const used = h('meter', { min: 0, max: 1, value: 0, 'aria-label': `used of link domain ${index}` });
    const count = h('span', { class: 'quiet' });
    this.heads.set(at, { used, count });
    const box = h('section', { class: 'domain', 'aria-label': `Link domain ${index}` }, head,
      h('p', { class: 'quiet' }, used, ' ', count));
    if (!fold || this.open.has(at)) {
      box.append(this.machines(machines));
    } else {
      const button = h('button', { 'aria-expanded': 'false', onclick: () => {
        this.open.add(at);
        button.replaceWith(this.machines(machines));
        this.paint();
      } }, `show its ${[...machines.values()].flat().length} devices`);
      box.append(button);
    }
    return box;
  }

  machines(machines) {
    const widest = Math.max(...[...machines.values()].map((keys) => keys.length));
    const rows = [...machines].map(([machine, keys], row) => {
      const y = row * (SIDE + GAP);
      const name = s('text', { x: 0, y: y + SIDE - 4, 'data-machine': machine }, machine.slice(-14));
      return [name, ...keys.map((key, column) => {
        const cell = s('rect', { class: 'device', x: NAME + column * (SIDE + GAP), y, width: SIDE,
          height: SIDE, rx: 3, tabindex: this.cells.size ? -1 : 0, role: 'img', 'data-key': key,
          onfocus: () => this.tell(key), onmouseenter: () => this.tell(key) });
        this.cells.set(key, cell);
        return cell;
      })];
    });
    return s('svg', { width: NAME + widest * (SIDE + GAP), height: machines.size * (SIDE + GAP),
      role: 'group' }, ...rows.flat());
  }

  paint() {
    const partitions = this.source('partitions');
    const held = new Map();
    for (const lease of this.source('leases').values()) if (!lease.parent) held.set(lease.partition, lease);
    const states = new Map();
    const domains = new Map();
    const kinds = new Map();
    const find = this.find.trim().toLowerCase();
    for (const [key, device] of this.source('devices')) {
      states.set(device[2], (states.get(device[2]) ?? 0) + 1);
      const at = key.slice(0, key.lastIndexOf('/'));
      const sums = domains.get(at) ?? [0, 0];
      sums[0] += 1;
      if (device[2] !== 'FREE') sums[1] += 1;
      domains.set(at, sums);
      const partition = partitions.get(device[3]);
      const kind = BY[this.by](device, partition, held.get(device[3]));
      if (kind) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
      const cell = this.cells.get(key);
      if (!cell) continue;
      const text = words(key, device, partition, held.get(device[3]));
      const faint = find && !text.toLowerCase().includes(find) ? ' faint' : '';
      const way = this.inWay.has(`p ${device[3]}`) || this.inWay.has(`m ${device[0]}`) ? ' way' : '';
      const moves = held.get(device[3])?.move ? ' moving' : '';
      const seen = `device ${device[2]}${way}${moves} ${kind && device[2] === 'IN_USE' ? colour(kind) : ''}${faint}`;
      if (cell.getAttribute('class') !== seen) cell.setAttribute('class', seen);
      if (cell.getAttribute('aria-label') !== text) cell.setAttribute('aria-label', text);
    }
    for (const [at, { used, count }] of this.heads) {
      const [all, taken] = domains.get(at) ?? [0, 0];
      used.value = all ? taken / all : 0;
      count.textContent = `${all - taken} of ${all} free`;
    }
    for (const name of this.plan.querySelectorAll('text')) {
      const machine = this.source('machines').get(name.dataset.machine);
      const wrong = machine && machine.state !== 'UP';
      name.setAttribute('class', wrong ? 'bad' : '');
      name.textContent = `${wrong ? '✕ ' : ''}${name.dataset.machine.slice(wrong ? -12 : -14)}`;
    }
    this.figures(states);
    this.moves(held);
    this.left();
    this.keys(kinds, states);
    if (this.told) this.tell(this.told);
  }

  figures(states) {
    const all = this.source('devices').size;
    const figures = [['devices', all], ['in use', states.get('IN_USE') ?? 0], ['free', states.get('FREE') ?? 0]];
    for (const name of ['RESERVED', 'RESETTING', 'DRAINED', 'DOWN']) {
      if (states.get(name)) figures.push([name.toLowerCase(), states.get(name)]);
    }
    const useless = this.useless();
    if (useless !== null) figures.push([`free, of no use for ${this.size}`, useless]);
    figures.push(['partitions', this.source('partitions').size], ['waiting', this.source('waiters').size]);
    this.numbers.replaceChildren(...figures.map(([name, value]) =>
      h('div', {}, h('dt', {}, name), h('dd', {}, String(value)))));
  }

  // Free devices that are in no block of the chosen size.
  useless() {
    let sum = null;
    for (const { sizes, free } of this.source('fragments').values()) {
      const found = sizes.find(([size]) => size === this.size);
      sum = (sum ?? 0) + (found ? found[2] : free);
    }
    return sum;
  }

  left() {
    const shown = JSON.stringify([this.size, ...this.source('fragments')]);
    if (shown === this.leftShown) return;
    this.leftShown = shown;
    this.sizes.replaceChildren(...[...this.source('fragments')].filter(([, one]) => one.sizes.length)
      .map(([name, one]) => fragments(name, one, this.size, (size) => {
        this.size = size;
        this.keep();
        this.paint();
      })));
  }

  // What will move, and for whom. Where to, administrators are told.
  moves(held) {
    const told = this.source('moves');
    const asked = [...held].filter(([name, lease]) => lease.move && !told.has(name))
      .map(([name, lease]) => [name, { owner: lease.owner, asked: true, to: '' }]);
    const rows = [...told, ...asked];
    const shown = JSON.stringify(rows);
    if (shown === this.movesShown) return;
    this.movesShown = shown;
    this.moving.replaceChildren(...(rows.length ? [h('h2', {}, 'What will move'), h('ul', {}, ...rows.map(
      ([name, { owner, asked: now, to, waiter }]) => h('li', {}, link(`/partitions/${encodeURIComponent(name)}`, name),
        ` of ${owner} ${now ? 'is asked to move' : 'would move next'}`, to ? ` to ${to}` : '',
        ...(waiter ? [' and makes room for ', link(`/line?find=${encodeURIComponent(waiter)}`, `request ${waiter}`)] : [])))),
      ...(told.size ? [h('p', { class: 'quiet' }, 'the same: ', h('code', {}, 'vipu-admin moves'))] : [])] : []));
  }

  keys(kinds, states) {
    const key = (name, classes) => h('span', { class: 'key' },
      s('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
        s('rect', { class: `device ${classes}`, x: 1, y: 1, width: 12, height: 12, rx: 2 })), name);
    const known = [...kinds].sort((a, b) => b[1] - a[1]).slice(0, 12)
      .map(([name, count]) => key(`${name} (${count})`, colour(name)));
    const others = [...states.keys()].filter((name) => name !== 'IN_USE')
      .map((name) => key(name.toLowerCase(), name));
    this.legend.replaceChildren(...known, ...others);
  }

  tell(key) {
    this.told = key;
    const device = this.source('devices').get(key);
    if (!device) return;
    const partition = this.source('partitions').get(device[3]);
    const lease = [...this.source('leases').values()].find((one) => one.partition === device[3] && !one.parent);
    const text = words(key, device, partition, lease);
    const until = partition ? ` (for ${since(Date.now() / 1000 - partition.created)})` : '';
    this.about.replaceChildren(text + until, device[3] ? ' · ' : '',
      ...(device[3] ? [link(`/partitions/${encodeURIComponent(device[3])}`, device[3])] : []));
  }

  move(event) {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const from = event.target.dataset?.key;
    if (!step || !from) return;
    event.preventDefault();
    const keys = [...this.cells.keys()];
    let to = keys.indexOf(from);
    if (step[0]) to += step[0];
    else {
      const machine = this.source('devices').get(from)[0];
      const column = event.target.getAttribute('x');
      do to += step[1]; while (keys[to] && (this.source('devices').get(keys[to])?.[0] === machine
        || this.cells.get(keys[to]).getAttribute('x') !== column));
    }
    const cell = this.cells.get(keys[to]);
    if (!cell) return;
    event.target.setAttribute('tabindex', '-1');
    cell.setAttribute('tabindex', '0');
    cell.focus();
  }
}
