// The pod as it stands in its racks: link domains, machines, devices.
import { STATES, assign, hueClass, patterns } from './colours.js';
import { h, link, s, time, whom } from './dom.js';
import { Opened, deviceCount, folded, sizeOf, states as statesOf, total } from './folded.js';
import { fragments } from './fragments.js';
import { Hour } from './hour.js';
import { topic } from './live.js';
import { deviceProblems, hasProblem, problemStrip } from './problems.js';
import { Queue } from './queue.js';
import { Selected, words } from './selected.js';
import { ask } from './session.js';

const GAP = 2;
// Names in the legend: all of a small pod.
const named = (devices) => (devices > 256 ? 10 : 20);

// A control with its label, which stay on one line.
const pair = (id, text, control) => h('span', { class: 'pair' }, h('label', { for: id }, text), control);

const BY = {
  partition: (device, partition) => device[3],
  user: (device, partition) => partition?.owner ?? '',
  job: (device, partition) => partition?.job ?? '',
  load: (device, partition, lease) => (partition ? (lease ? 'a program holds it' : 'no program holds it') : ''),
  state: () => '',
};

// How large a device is drawn, so that a pod of that many fits a screen: pixels of a device, of its
// width where that is another, and of a machine's name. room: the width that there is for a pod
// whose domains stand in so many columns of so many devices. Wide devices are named.
function scale(count, room, columns, devices) {
  if (count <= 64) {
    const name = 92;
    const wide = Math.min(104, Math.floor((room - 24 + 8) / columns - name - 8) / devices - GAP);
    return wide >= 54 ? { side: 50, wide, name } : { side: 44, wide: 44, name };
  }
  if (count <= 256) return { side: 18, wide: 18, name: 74 };
  return { side: 12, wide: 12, name: 50 };
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

// Columns in which the machines of a domain are drawn.
function columnsOf(machines) {
  const widest = Math.max(0, ...[...machines.values()].map((keys) => keys.length));
  return [machines.size >= 8 && widest <= 8 ? 2 : 1, widest];
}

export class Pod {
  title = 'Pod';
  topics = ['clusters', 'devices', 'partitions', 'machines', 'leases', 'waiters', 'moves',
    'problems', 'jobs', 'fragments', 'readings', 'domains', 'totals'];

  // source: where topics come from; base: the address that keeps the choices, none: nowhere.
  // details: the address of what is in a link domain of a large pod.
  constructor(host, address, { source: given = topic, base = '/pod', title = 'Pod',
    details = (domain) => (this.hour?.when ? `/v1/history/at?time=${this.hour.when}&domain=${encodeURIComponent(domain)}`
      : `/v1/domain?name=${encodeURIComponent(domain)}`) } = {}) {
    // What was, while a minute of the last hour is chosen.
    this.then = null;
    const chosen = (name) => (this.then ? this.then.get(name) ?? new Map() : given(name));
    this.opened = new Opened(chosen, { address: details, keep: Boolean(base), changed: (domain) => {
      const opens = document.activeElement?.dataset.open === domain;
      this.draw();
      if (opens) this.plan.querySelector(`[data-key^="${CSS.escape(domain)}/"]`)?.focus();
    } });
    const source = (name) => this.opened.topic(name);
    Object.assign(this, { source, base, given, host });
    this.by = address.get('by') in BY ? address.get('by') : 'partition';
    this.find = address.get('find') ?? '';
    this.problem = address.get('problem') ?? '';
    this.cells = new Map();
    this.labels = new Map(); // of devices that are wide enough
    this.numbersOf = new Map();
    this.size = Number(address.get('size')) || 16;
    this.way = base ? address.get('way') ?? '' : '';
    this.inWay = new Set();
    this.waySaid = h('div', { id: 'way', role: 'status' });
    this.sizes = h('div', { class: 'sizes' });
    this.moving = h('div', { id: 'moving', role: 'status' });
    this.numbers = h('dl', { class: 'numbers' });
    this.legend = h('div', { class: 'legend', role: 'group', 'aria-label': 'Legend', tabindex: 0 });
    this.about = h('p', { id: 'about', role: 'status' }, h('span', { class: 'quiet' },
      'Point at a device, or walk by the arrow keys, to read whose it is. ', ...(base ? ['The same: ', h('code', {}, 'vipu list devices')] : [])));
    this.tip = s('text', { class: 'tip', 'aria-hidden': 'true' });
    this.hour = base ? new Hour((topics) => this.showThen(topics), Number(address.get('at')) || 0) : null;
    this.side = h('aside', { class: 'side', 'aria-label': 'Selected' });
    this.selected = new Selected(this.side, source, { acts: Boolean(base) });
    this.plan = h('div', { class: 'pod' });
    const choose = h('select', { id: 'by', onchange: () => { this.by = choose.value; this.keep(); this.draw(); } },
      ...Object.keys(BY).map((name) => h('option', { value: name, selected: name === this.by }, name)));
    const find = h('input', { id: 'find', type: 'search', value: this.find,
      oninput: () => { this.find = find.value; this.keep(); this.paint(); } });
    this.kinds = h('select', { id: 'problem', onchange: () => { this.problem = this.kinds.value; this.keep(); this.paint(); } });
    this.matching = h('span', { id: 'matching', role: 'status' });
    const controls = h('div', { class: 'controls' },
      pair('by', 'Colour by', choose), pair('find', 'Show only', find),
      ...(base ? [pair('problem', 'Problem', this.kinds)] : []), this.matching);
    this.queue = base ? new Queue(source) : null;
    if (base) host.className = 'pod-view';
    host.replaceChildren(patterns(), ...(title ? [h('h1', { class: 'hidden' }, title)] : []),
      ...(base ? [problemStrip(given)] : []), h('div', { class: 'top' }, this.numbers, controls),
      h('div', { class: 'screen' },
        h('div', { class: 'map' }, this.waySaid, this.plan, this.legend, this.about, ...(base ? [this.hour.host] : [])),
        h('div', { class: 'beside' }, this.side, ...(this.queue ? [this.queue.host] : []), this.sizes, this.moving)));
    this.strip = host.querySelector('.problems');
    this.plan.addEventListener('keydown', (event) => this.move(event));
    this.plan.addEventListener('click', ({ target }) => this.choose(target.dataset.key));
    for (const kind of ['mouseleave', 'focusout']) this.plan.addEventListener(kind, () => this.point(''));
    this.draw();
    this.stands();
    new ResizeObserver(() => { if (this.scaleNow().wide !== this.scale.wide) this.draw(); }).observe(this.plan);
  }

  choose(key) {
    if (!key) return;
    this.cells.get(this.selected.key)?.classList.remove('chosen');
    this.selected.show(key);
    this.cells.get(key)?.classList.add('chosen');
  }

  keep() {
    if (!this.base) return;
    const query = new URLSearchParams();
    if (this.by !== 'partition') query.set('by', this.by);
    if (this.find) query.set('find', this.find);
    if (this.problem) query.set('problem', this.problem);
    if (this.size !== 16) query.set('size', this.size);
    if (this.way) query.set('way', this.way);
    if (this.hour.when) query.set('at', this.hour.when);
    history.replaceState(null, '', `${this.base}${query.size ? `?${query}` : ''}`);
  }

  close() {
    this.opened.close();
    this.hour?.close();
  }

  // topics: of a minute; null: what is.
  showThen(topics) {
    this.then = topics;
    this.selected.acts = !topics;
    this.host.classList.toggle('past', Boolean(topics));
    this.keep();
    if (folded(this.source)) this.opened.again();
    if (this.shape === this.shapeNow()) this.paint();
    else this.draw();
    this.queue.draw();
  }

  update(changed) {
    this.opened.update();
    if (changed.has('clusters') && this.shape !== this.shapeNow()) this.draw();
    else this.paint();
    if (changed.has('partitions') || changed.has('waiters')) this.stands();
    if (changed.has('problems')) {
      const strip = problemStrip(this.given);
      this.strip.replaceWith(strip);
      this.strip = strip;
    }
    this.queue?.draw();
  }

  // What stands in the way of a request, marked on the plan and told in words.
  async stands() {
    if (!this.way || !this.source('clusters').size) return;
    this.old = Boolean(this.asking); // what is asked now may be answered as of before
    if (this.asking) return;
    this.asking = true;
    let said;
    const job = this.given('jobs').get(this.way);
    const waits = job ?? this.given('waiters').get(this.way);
    this.keptFor = job ? `job ${job.job} of ${job.scheduler}` : this.way;
    if (job) said = { lines: [job.needs || job.asked] };
    else if (!waits) said = { lines: ['It waits no more.'] };
    else try {
      said = await ask(`/v1/explain?name=${encodeURIComponent(this.way)}`);
    } catch (error) {
      said = { lines: [error.message] };
    }
    this.asking = false;
    if (this.old) { this.stands(); return; }
    this.inWay = new Set([...(said.partitions ?? []).map((one) => `p ${one.partition}`),
      ...[...(said.down ?? []), ...(said.drained ?? [])].map((name) => `m ${name}`)]);
    const starts = waits?.starts ? [`${said.problem ? '; it' : 'It'} can start `, time(waits.starts)] : [];
    this.waySaid.replaceChildren(h('h2', {}, `Why ${waits?.owner ? `${waits.owner}'s ` : ''}${whom(this.keptFor)} waits`),
      ...(said.problem || starts.length ? [h('p', {}, said.problem ?? '', ...starts)] : []),
      h('ul', {}, ...(said.lines ?? []).map((line) => h('li', {}, line))),
      h('p', { class: 'quiet' }, ...(job ? [] : ['the same: ', h('code', {}, `vipu explain ${this.way}`), ' · ']),
        link('/pod', 'show it no more')));
    this.paint();
  }

  shapeNow() {
    return JSON.stringify([...this.source('clusters')].map(([name, c]) => [name, c.domains]))
      + this.source('devices').size + this.source('domains').size;
  }

  draw() {
    this.shape = this.shapeNow();
    this.cells.clear();
    this.labels.clear();
    this.heads = new Map();
    this.first = false;
    // Of a folded pod all link domains are drawn, and the devices of those that are opened.
    const places = new Map([...this.source('domains').keys()].map((at) => [at, new Map()]));
    for (const [key, device] of this.source('devices')) {
      const domain = key.slice(0, key.lastIndexOf('/'));
      if (!places.has(domain)) places.set(domain, new Map());
      const machines = places.get(domain);
      if (!machines.has(device[0])) machines.set(device[0], []);
      machines.get(device[0]).push(key);
    }
    const count = deviceCount(this.source);
    const fold = folded(this.source);
    const shapes = [...places.values()].map(columnsOf);
    this.scaleNow = () => scale(fold ? 256 : count, this.plan.clientWidth,
      Math.max(1, ...shapes.map(([columns]) => columns)), Math.max(1, ...shapes.map(([, devices]) => devices)));
    this.scale = this.scaleNow();
    const clusters = [...this.source('clusters')].map(([name, cluster]) => h('section', {},
      h('h2', {}, `${name} · ${cluster.family}`, cluster.simulated ? ' · simulated' : ''),
      h('div', { class: 'domains' }, ...[...places].filter(([at]) => at.startsWith(`${name}/`))
        .sort(([, a], [, b]) => !a.size - !b.size).map(([at, machines]) => this.domain(at, machines, count)))));
    this.plan.replaceChildren(...(clusters.length ? clusters
      : [h('p', {}, 'There is no cluster yet: ', h('code', {}, 'vipu-admin create cluster'), ' makes one.')]));
    this.paint();
  }

  domain(at, machines, all) {
    const [, index] = at.split('/');
    if (!machines.size) return this.tile(at, index);
    const head = h('h3', {}, `${all > 256 ? 'Domain' : 'Link domain'} ${index}`);
    const used = h('meter', { min: 0, max: 1, value: 0, 'aria-label': `used of link domain ${index}` });
    const count = h('span', { class: 'quiet' });
    this.heads.set(at, { used, count });
    const box = h('section', { class: 'domain', 'aria-label': `Link domain ${index}` },
      h('div', { class: 'domain-head' }, head, used, count));
    box.append(this.machines(machines));
    return box;
  }

  // A link domain of a large pod that is not opened: how its devices are, from used ones at the bottom.
  tile(at, index) {
    const bars = s('svg', { viewBox: `0 0 1 1`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    const tell = () => this.about.replaceChildren(button.getAttribute('aria-label'));
    const button = h('button', { 'data-open': at, tabindex: this.first ? -1 : 0, onclick: () => this.opened.open(at), onfocus: tell, onmouseenter: tell }, bars,
      h('span', {}, index));
    this.first = true; // the others are reached by arrow keys
    this.heads.set(at, { bars, button });
    return h('section', { class: 'domain tile' }, button);
  }

  paintTile({ bars, button }, at) {
    const counts = this.source('domains').get(at) ?? [];
    const all = sizeOf(counts);
    const found = statesOf(counts);
    if (bars.dataset.shown === String(counts)) return;
    bars.dataset.shown = counts;
    let y = 1;
    const shown = Object.keys(STATES).filter((name) => found.has(name));
    bars.replaceChildren(...shown.filter((name) => name !== 'FREE').map((name) => {
      const height = found.get(name) / all;
      y -= height;
      return s('rect', { class: `share ${name}`, x: 0, y, width: 1, height });
    }));
    button.setAttribute('aria-label', `Link domain ${at.slice(at.lastIndexOf('/') + 1)} of ${at.slice(0, at.lastIndexOf('/'))}: ${
      shown.map((name) => `${found.get(name)} ${STATES[name]}`).join(', ')}. Show its devices`);
  }

  // Machines in two columns where there are many, first down, then across.
  machines(machines) {
    const { side, wide: broad, name: wide } = this.scale;
    const [columns, widest] = columnsOf(machines);
    const rows = Math.ceil(machines.size / columns);
    const across = wide + widest * (broad + GAP) + 8;
    const letters = Math.floor((wide - 4) / (side > 12 ? 6.2 : 5));
    const drawn = [...machines].map(([machine, keys], number) => {
      const x = Math.floor(number / rows) * across;
      const y = (number % rows) * (side + GAP);
      const text = s('text', { x, y: y + side / 2 + 3.5, 'data-machine': machine, 'data-letters': letters }, machine);
      return [text, ...keys.map((key, column) => {
        const cell = s('rect', { class: 'device', x: x + wide + column * (broad + GAP) + 1, y: y + 1, width: broad - 2,
          height: side - 2, rx: 2, tabindex: this.cells.size ? -1 : 0, role: 'img', 'data-key': key,
          'data-column': column, onfocus: () => this.point(key), onmouseenter: () => this.point(key) });
        this.cells.set(key, cell);
        return cell;
      }), ...(broad > side ? keys.map((key, column) => {
        const label = s('text', { class: 'label', x: x + wide + column * (broad + GAP) + 7, y: y + side / 2 + 4, 'aria-hidden': 'true' });
        this.labels.set(key, label);
        return label;
      }) : [])];
    });
    const [width, height] = [columns * across - 8, rows * (side + GAP)];
    return s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group',
      class: side > 12 ? null : 'small' }, ...drawn.flat());
  }

  // Numbers of colours for all kinds that are drawn, so that those that border differ.
  colours(kindOf) {
    const borders = new Map();
    const order = [];
    let before = ['', ''], above = new Map();
    for (const [key, device] of this.source('devices')) {
      const kind = kindOf(device);
      const domain = key.slice(0, key.lastIndexOf('/'));
      if (domain !== before[0]) above = new Map();
      if (kind) {
        if (!borders.has(kind)) {
          borders.set(kind, new Set());
          order.push(kind);
        }
        const near = [domain === before[0] ? before[1] : '', above.get(device[1])];
        for (const other of near) {
          if (!other || other === kind) continue;
          borders.get(kind).add(other);
          borders.get(other).add(kind);
        }
      }
      above.set(device[1], kind);
      before = [domain, kind];
    }
    return assign(order, borders, this.numbersOf);
  }

  paint() {
    const partitions = this.source('partitions');
    const held = new Map();
    for (const lease of this.source('leases').values()) if (!lease.parent) held.set(lease.partition, lease);
    const states = new Map();
    const domains = new Map();
    const kinds = new Map();
    const find = this.find.trim().toLowerCase();
    const ill = this.problem ? hasProblem(this.given, this.problem) : null;
    let matching = 0;
    const kindOf = (device) => (device[2] === 'IN_USE' || device[2] === 'RESETTING' || device[2] === 'DOWN'
      ? BY[this.by](device, partitions.get(device[3]), held.get(device[3])) : '');
    const numbers = this.colours(kindOf);
    const drained = new Set([...this.source('clusters').values()].flatMap((cluster) => cluster.drained ?? []));
    const pointed = this.source('devices').get(this.pointed)?.[3];
    const why = this.way && (this.inWay.size || [...this.source('devices').values()].some((device) => device[5] === this.keptFor));
    for (const [key, device] of this.source('devices')) {
      states.set(device[2], (states.get(device[2]) ?? 0) + 1);
      const at = key.slice(0, key.lastIndexOf('/'));
      const sums = domains.get(at) ?? [0, 0, 0, 0];
      sums[0] += 1;
      if (device[2] === 'IN_USE') sums[1] += 1;
      if (device[2] === 'FREE') sums[2] += 1;
      domains.set(at, sums);
      const partition = partitions.get(device[3]);
      const kind = kindOf(device);
      if (kind) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
      const text = words(key, device, partition, held.get(device[3]), drained.has(device[0]));
      const match = (!find || text.toLowerCase().includes(find)) && (!ill || ill(key, device));
      if (match) sums[3] += 1;
      if (match) matching += 1;
      const cell = this.cells.get(key);
      if (!cell) continue;
      const way = this.inWay.has(`p ${device[3]}`) || this.inWay.has(`m ${device[0]}`) ? ' way'
        : why && device[5] === this.keptFor ? ' ours' : '';
      const faint = match && (way || !why) ? '' : ' faint';
      const same = pointed && device[3] === pointed ? ' same' : '';
      const moves = held.get(device[3])?.move ? ' moving' : '';
      const leaving = device[2] === 'IN_USE' && drained.has(device[0]) ? ' leaving' : '';
      const broken = partition?.state === 'ERROR' ? ' broken' : '';
      const chosen = key === this.selected.key ? ' chosen' : '';
      const hue = kind && device[2] === 'IN_USE' ? ` ${hueClass(numbers.get(kind))}` : '';
      const seen = `device ${device[2]}${way}${moves}${leaving}${broken}${chosen}${hue}${same}${faint}`;
      if (cell.getAttribute('class') !== seen) cell.setAttribute('class', seen);
      if (cell.getAttribute('aria-label') !== text) cell.setAttribute('aria-label', text);
    }
    if (folded(this.source)) { // the numbers of all, not only of what is opened
      states.clear();
      for (const [at, counts] of this.source('domains')) {
        const found = statesOf(counts);
        domains.set(at, [sizeOf(counts), found.get('IN_USE') ?? 0, found.get('FREE') ?? 0, domains.get(at)?.[3] ?? 0]);
        for (const [name, count] of found) states.set(name, (states.get(name) ?? 0) + count);
      }
    }
    for (const [at, head] of this.heads) {
      const { used, count } = head;
      if (head.bars) { this.paintTile(head, at); continue; }
      const [all, taken, free, match] = domains.get(at) ?? [0, 0, 0, 0];
      used.value = all ? taken / all : 0;
      count.textContent = `${taken} used, ${free} free${(find || ill) && (!folded(this.source) || this.opened.has(at)) ? `, ${match} shown` : ''}`;
    }
    this.name(kindOf);
    for (const name of this.plan.querySelectorAll('text[data-machine]')) {
      const machine = this.source('machines').get(name.dataset.machine);
      const wrong = machine && machine.state !== 'UP';
      const mark = wrong ? '✕ ' : drained.has(name.dataset.machine) ? '– ' : '';
      name.setAttribute('class', wrong ? 'bad' : mark ? 'drained' : '');
      name.textContent = mark + name.dataset.machine.slice(mark.length - Number(name.dataset.letters));
    }
    this.matching.textContent = find || ill ? `${matching} of ${this.source('devices').size} devices${folded(this.source) ? ' of opened domains' : ''}` : '';
    this.choices();
    this.figures(states);
    this.moves(held);
    this.left();
    this.keys(kinds, states, numbers);
    if (this.pointed) this.point(this.pointed);
    this.selected.draw();
  }

  // The name of what has a device, at the first of its devices in each machine, as long as they are.
  name(kindOf) {
    const partitions = this.source('partitions');
    let run = null;
    const runs = [];
    for (const [key, label] of this.labels) {
      const device = this.source('devices').get(key);
      const kind = device?.[2] === 'IN_USE' ? kindOf(device) : '';
      if (run && run.kind === kind && run.machine === device?.[0]) run.length += 1;
      else runs.push(run = { kind, machine: device?.[0], length: 1, label });
      if (run.label !== label) label.textContent = '';
    }
    for (const { kind, length, label } of runs) {
      const { owner, until } = (this.by === 'partition' && partitions.get(kind)) || {};
      const end = until && this.inWay.has(`p ${kind}`) ? `until ${clock(until)}` : '';
      const text = [kind, owner, end].filter(Boolean).join(' · ');
      const most = Math.floor((length * this.scale.wide - 12) / 7);
      label.textContent = text.length > most ? `${text.slice(0, most - 1)}…` : text;
    }
  }

  // The problems that devices have now, and the chosen one, which stays when it is solved.
  choices() {
    const kinds = new Map([['', 'all devices'], ['any', 'any problem'], ...deviceProblems(this.given)]);
    if (!kinds.has(this.problem)) kinds.set(this.problem, this.problem);
    const shown = JSON.stringify([...kinds, this.problem]);
    if (shown === this.kindsShown) return;
    this.kindsShown = shown;
    this.kinds.replaceChildren(...[...kinds].map(([kind, text]) =>
      h('option', { value: kind, selected: kind === this.problem }, text)));
  }

  figures(states) {
    const all = deviceCount(this.source);
    const figures = [['devices', all], ['in use', states.get('IN_USE') ?? 0], ['free', states.get('FREE') ?? 0]];
    for (const name of ['RESERVED', 'RESETTING', 'DRAINED', 'DOWN']) {
      if (states.get(name)) figures.push([name === 'RESERVED' ? 'kept' : STATES[name], states.get(name)]);
    }
    const fits = [...this.source('fragments').values()].flatMap(({ sizes }) => sizes);
    if (fits.length) {
      figures.push(['largest that fits', Math.max(0, ...fits.filter(([, count]) => count).map(([size]) => size))]);
    }
    figures.push(['partitions', total('partitions', this.source)], ['waiting', this.source('waiters').size + this.source('jobs').size]);
    this.numbers.replaceChildren(...figures.map(([name, value]) =>
      h('div', {}, h('dt', {}, name), h('dd', {}, value.toLocaleString()))));
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

  keys(kinds, states, numbers) {
    const key = (name, classes) => h('span', { class: 'key' },
      s('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
        s('rect', { class: `device ${classes}`, x: 1, y: 1, width: 12, height: 12, rx: 2 })), name);
    const owners = this.by === 'partition' ? this.source('partitions') : new Map();
    const known = [...kinds].filter(([name]) => numbers.has(name)).sort((a, b) => b[1] - a[1])
      .map(([name, count]) => key(`${name}${owners.get(name)?.owner ? ` of ${owners.get(name).owner}` : ''} (${count})`,
        `IN_USE ${hueClass(numbers.get(name))}`));
    const plain = [...this.source('devices').values()].some((device) => device[2] === 'IN_USE'
      && !BY[this.by](device, this.source('partitions').get(device[3])));
    const others = Object.keys(STATES).filter((name) => states.has(name) && (name !== 'IN_USE' || plain || folded(this.source)))
      .map((name) => key(STATES[name], name));
    const marks = [['leaving', 'in use on a drained machine'], ['broken', 'its partition is in error'],
      ['moving', 'asked to move'], ['way', 'in the way'], ['ours', 'kept for it']]
      .filter(([name]) => this.plan.querySelector(`.device.${name}`))
      .map(([name, text]) => key(text, name === 'ours' ? 'RESERVED ours' : `IN_USE ${name}`));
    const most = named(deviceCount(this.source));
    const more = known.length - most;
    this.legend.replaceChildren(...known.slice(0, most), ...(more > 0 ? [link('/partitions', `${more} more`)] : []), ...others, ...marks);
  }

  // Name a device, and mark all that its partition has. key: empty for none.
  point(key) {
    this.pointed = key;
    const cell = this.cells.get(key);
    const device = this.source('devices').get(key);
    for (const [other, { classList }] of this.cells) {
      classList.toggle('same', Boolean(device?.[3]) && this.source('devices').get(other)?.[3] === device[3]);
    }
    if (!device || !cell) {
      this.tip.remove();
      return;
    }
    const text = cell.getAttribute('aria-label');
    if (!this.labels.size) {
      const [x, y, width] = ['x', 'y', 'width'].map((name) => Number(cell.getAttribute(name)));
      const right = x > Number(cell.ownerSVGElement.getAttribute('width')) / 2;
      for (const [name, value] of Object.entries({ x: right ? x + width : x, y: y - 4, 'text-anchor': right ? 'end' : 'start' })) {
        this.tip.setAttribute(name, value);
      }
      const owner = this.source('partitions').get(device[3])?.owner;
      this.tip.textContent = device[3] ? `${device[3]}${owner ? ` · ${owner}` : ''}` : STATES[device[2]] ?? device[2];
      cell.ownerSVGElement.append(this.tip);
    }
    this.about.replaceChildren(...(device[3]
      ? [link(`/partitions/${encodeURIComponent(device[3])}`, device[3]), ' · '] : []), text ?? '');
  }

  move(event) {
    if (event.key === 'Enter' || event.key === ' ') {
      if (event.target.dataset?.key) event.preventDefault();
      this.choose(event.target.dataset?.key);
      return;
    }
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const from = event.target.dataset?.key;
    const tile = event.target.closest('.tile');
    if (step && tile) {
      const all = [...tile.parentNode.children];
      const across = all.filter((one) => one.offsetTop === tile.offsetTop).length;
      const to = all[all.indexOf(tile) + step[0] + step[1] * across]?.querySelector('[data-open]');
      if (!to) return;
      event.preventDefault();
      Object.assign(event.target, { tabIndex: -1 });
      Object.assign(to, { tabIndex: 0 }).focus();
    }
    if (!step || !from) return;
    event.preventDefault();
    const keys = [...this.cells.keys()];
    let to = keys.indexOf(from);
    if (step[0]) to += step[0];
    else {
      const machine = this.source('devices').get(from)[0];
      const { column } = event.target.dataset;
      do to += step[1]; while (keys[to] && (this.source('devices').get(keys[to])?.[0] === machine
        || this.cells.get(keys[to]).dataset.column !== column));
    }
    const cell = this.cells.get(keys[to]);
    if (!cell) return;
    event.target.setAttribute('tabindex', '-1');
    cell.setAttribute('tabindex', '0');
    cell.focus();
  }
}
