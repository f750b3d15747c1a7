// GPU nodes under Slurm: nodes with their GPUs by job, jobs that run, jobs that wait and why.
import { assign, hueClass, patterns } from './colours.js';
import { h, link, s } from './dom.js';
import { connect, topic } from './live.js';
import { start } from './shell.js';
import { Table } from './table.js';

const SIDE = 17, GAP = 3;
const FEW = 24, LARGE = 42; // so many nodes are drawn larger, with the names of jobs
const when = (text) => (text && text !== 'Unknown' ? text.replace('T', ' ') : '');

// Numbers of colours, so that jobs on one node, or on the next, differ.
function colours(nodes, known) {
  const borders = new Map();
  let before = [];
  for (const [, { gpus }] of nodes) {
    const jobs = [...new Set(gpus.map(([, job]) => job).filter(Boolean))];
    for (const job of jobs) {
      if (!borders.has(job)) borders.set(job, new Set());
      for (const other of [...jobs, ...before]) {
        if (other === job) continue;
        borders.get(job).add(other);
        borders.get(other).add(job);
      }
    }
    before = jobs;
  }
  return assign([...borders.keys()], borders, known);
}

// The job and its user, on the first of the GPUs beside each other that it has, as long as these are.
function labels(node, side) {
  const runs = [];
  node.gpus.forEach(([, job], index) => {
    if (runs.at(-1)?.job === job) runs.at(-1).length += 1;
    else runs.push({ job, index, length: 1 });
  });
  return runs.filter(({ job }) => job && job !== '?').map(({ job, index, length }) => {
    const user = topic('jobs').get(job)?.user;
    const text = user ? `${job} · ${user}` : job;
    const most = Math.floor((length * (side + GAP) - 12) / 7);
    return s('text', { class: 'label', x: index * (side + GAP) + 6, y: side / 2 + 4, 'aria-hidden': 'true' },
      text.length > most ? `${text.slice(0, most - 1)}…` : text);
  });
}

class Nodes {
  title = 'Nodes';
  topics = ['nodes', 'jobs', 'queue'];

  constructor(host, address) {
    this.find = address.get('find') ?? '';
    this.numbers = h('dl', { class: 'numbers' });
    this.plan = h('div', { class: 'domains pod' });
    this.legend = h('p', { class: 'legend' });
    this.about = h('p', { id: 'about', role: 'status' });
    const find = h('input', { id: 'find', type: 'search', value: this.find, oninput: () => {
      this.find = find.value;
      history.replaceState(null, '', `/nodes${this.find ? `?find=${encodeURIComponent(this.find)}` : ''}`);
      this.draw();
    } });
    host.replaceChildren(patterns(), h('h1', {}, 'Nodes'), this.numbers,
      h('div', { class: 'controls' }, h('label', { for: 'find' }, 'Show only '), find,
        h('span', { class: 'quiet' }, 'the same: ', h('code', {}, 'sinfo -N -o "%N %T %G %E"'))),
      this.plan, this.legend, this.about);
    this.draw();
  }

  update() {
    this.draw();
  }

  draw() {
    const find = this.find.trim().toLowerCase();
    const all = [...topic('nodes')];
    const had = document.activeElement?.dataset?.key;
    let used = 0, gpus = 0, ill = 0, free = 0;
    this.hues = colours(all, this.hues ?? new Map());
    const drawn = [];
    for (const [name, node] of all) {
      gpus += node.gpus.length;
      used += node.gpus.filter(([, job]) => job).length;
      if (node.ill) ill += node.gpus.length;
      else free += node.gpus.filter(([, job]) => !job).length;
      const users = node.gpus.map(([, job]) => topic('jobs').get(job)?.user ?? '');
      const text = `${name} ${node.state} ${node.reason} ${node.partitions} ${node.gpus.flat().join(' ')} ${users.join(' ')}`;
      if (!find || text.toLowerCase().includes(find)) drawn.push(this.node(name, node));
    }
    this.plan.replaceChildren(...(drawn.length ? drawn
      : [h('p', {}, all.length ? 'Nothing fits.' : 'No node of this Slurm has GPUs, or they are private.')]));
    this.keys(all);
    const figures = [['nodes', all.length], ['GPUs', gpus], ['in use', used], ['free', free],
      ['on ill or drained nodes', ill], ['jobs', topic('jobs').size], ['waiting', topic('queue').size]];
    this.numbers.replaceChildren(...figures.map(([name, value]) =>
      h('div', {}, h('dt', {}, name), h('dd', {}, String(value)))));
    if (had) this.plan.querySelector(`[data-key="${CSS.escape(had)}"]`)?.focus();
  }

  keys(nodes) {
    const key = (name, classes) => h('span', { class: 'key' }, s('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
      s('rect', { class: `device ${classes}`, x: 1, y: 1, width: 12, height: 12, rx: 2 })), name);
    const owner = (job) => topic('jobs').get(job)?.user;
    const free = nodes.some(([, node]) => !node.ill && node.gpus.some(([, job]) => !job));
    this.legend.replaceChildren(...[...this.hues].map(([job, hue]) => key(job === '?' ? 'in use'
      : `job ${job}${owner(job) ? ` of ${owner(job)}` : ''}`, `IN_USE ${hueClass(hue)}`)),
    ...(free ? [key('free', 'FREE')] : []),
    ...(nodes.some(([, node]) => node.ill && node.gpus.some(([, job]) => job)) ? [key('in use on such a node', 'IN_USE leaving')] : []),
    ...(nodes.some(([, node]) => node.ill) ? [key('on an ill or drained node', 'DOWN')] : []));
  }

  node(name, node) {
    const side = topic('nodes').size <= FEW ? LARGE : SIDE;
    const cells = node.gpus.map(([kind, job], index) => {
      const state = job ? 'IN_USE' : node.ill ? 'DOWN' : 'FREE';
      const owner = topic('jobs').get(job)?.user;
      const words = `GPU ${index} of ${name}, ${kind}: ${job ? (job === '?' ? 'in use'
        : `job ${job}${owner ? ` of ${owner}` : ''}`) : node.ill ? node.state.toLowerCase() : 'free'}`;
      const tell = () => this.about.replaceChildren(words, ...(job && job !== '?'
        ? [' · ', link(`/running?find=${job}`, `job ${job}`)] : []));
      return s('rect', { class: `device ${state} ${job ? hueClass(this.hues.get(job) ?? 0) : ''}${job && node.ill ? ' leaving' : ''}`, x: index * (side + GAP), y: 0,
        width: side, height: side, rx: 3, tabindex: 0, role: 'img', 'aria-label': words,
        'data-key': `${name}/${index}`, onfocus: tell, onmouseenter: tell });
    });
    return h('section', { class: 'domain', 'data-node': name, 'aria-label': name },
      h('h2', { class: node.ill ? 'bad' : '' }, `${node.ill ? '✕ ' : ''}${name}`),
      s('svg', { width: node.gpus.length * (side + GAP), height: side, viewBox: `0 0 ${node.gpus.length * (side + GAP)} ${side}`,
        role: 'group' }, ...cells, ...(side === LARGE ? labels(node, side) : [])),
      h('p', { class: 'quiet' }, `${node.gpus.filter(([, job]) => job).length} of ${node.gpus.length} GPUs in use · ${node.cpus[0]} of ${node.cpus[1]} CPUs · Slurm: ${node.state.toLowerCase()}`),
      ...(node.reason ? [h('p', { class: 'bad' }, node.reason)] : []));
  }
}

const running = (host, address) => new Table(host, address, {
  title: 'Running', name: 'jobs', same: 'squeue --state=RUNNING', empty: 'No job holds GPUs.',
  columns: [
    ['Job', (key) => key, { sort: Number }], ['User', (_, j) => j.user], ['Name', (_, j) => j.name],
    ['Partition', (_, j) => j.partition], ['GPUs', (_, j) => j.gpus, { number: true }],
    ['Nodes', (_, j) => j.nodes, { number: true }], ['Since', (_, j) => when(j.since)],
    ['Until', (_, j) => when(j.until)],
  ],
});

const queue = (host, address) => new Table(host, address, {
  title: 'Waiting', name: 'queue', same: 'squeue --state=PENDING --sort=-p', empty: 'No job waits for GPUs.',
  columns: [
    ['Place', (_, j) => j.place, { number: true }], ['Job', (key) => key, { sort: Number }],
    ['User', (_, j) => j.user], ['Asked for', (_, j) => h('code', {}, j.asked)],
    ['Slurm says', (_, j) => j.reason],
    ['On idle nodes', (_, j) => j.why], ['Starts', (_, j) => when(j.starts)],
    ['Waits since', (_, j) => when(j.since)], ['Priority', (_, j) => j.priority, { number: true }],
  ],
});

start({ nodes: ['Nodes', (host, address) => new Nodes(host, address)],
  running: ['Running', running], queue: ['Waiting', queue] }, 'nodes');
connect();
