// GPU nodes under Slurm: nodes with their GPUs by job, jobs that run, jobs that wait and why.
import { colour, h, link, s } from './dom.js';
import { connect, topic } from './live.js';
import { start } from './shell.js';
import { Table } from './table.js';

const SIDE = 17, GAP = 3;
const when = (text) => (text && text !== 'Unknown' ? text.replace('T', ' ') : '');

class Nodes {
  title = 'Nodes';
  topics = ['nodes', 'jobs', 'queue'];

  constructor(host, address) {
    this.find = address.get('find') ?? '';
    this.numbers = h('dl', { class: 'numbers' });
    this.plan = h('div', { class: 'domains pod' });
    this.about = h('p', { id: 'about', role: 'status' });
    const find = h('input', { id: 'find', type: 'search', value: this.find, oninput: () => {
      this.find = find.value;
      history.replaceState(null, '', `/nodes${this.find ? `?find=${encodeURIComponent(this.find)}` : ''}`);
      this.draw();
    } });
    host.replaceChildren(h('h1', {}, 'Nodes'), this.numbers,
      h('div', { class: 'controls' }, h('label', { for: 'find' }, 'Show only '), find,
        h('span', { class: 'quiet' }, 'the same: ', h('code', {}, 'sinfo -N -o "%N %T %G %E"'))),
      this.plan, this.about);
    this.draw();
  }

  update() {
    this.draw();
  }

  draw() {
    const find = this.find.trim().toLowerCase();
    const all = [...topic('nodes')];
    const had = document.activeElement?.dataset?.key;
    let used = 0, gpus = 0, ill = 0;
    const drawn = [];
    for (const [name, node] of all) {
      gpus += node.gpus.length;
      used += node.gpus.filter(([, job]) => job).length;
      if (node.ill) ill += node.gpus.length;
      const users = node.gpus.map(([, job]) => topic('jobs').get(job)?.user ?? '');
      const text = `${name} ${node.state} ${node.reason} ${node.partitions} ${node.gpus.flat().join(' ')} ${users.join(' ')}`;
      if (!find || text.toLowerCase().includes(find)) drawn.push(this.node(name, node));
    }
    this.plan.replaceChildren(...(drawn.length ? drawn
      : [h('p', {}, all.length ? 'Nothing fits.' : 'No node of this Slurm has GPUs, or they are private.')]));
    const figures = [['nodes', all.length], ['GPUs', gpus], ['in use', used], ['free', gpus - used],
      ['on ill nodes', ill], ['jobs', topic('jobs').size], ['waiting', topic('queue').size]];
    this.numbers.replaceChildren(...figures.map(([name, value]) =>
      h('div', {}, h('dt', {}, name), h('dd', {}, String(value)))));
    if (had) this.plan.querySelector(`[data-key="${CSS.escape(had)}"]`)?.focus();
  }

  node(name, node) {
    const cells = node.gpus.map(([kind, job], index) => {
      const state = job ? 'IN_USE' : node.ill ? 'DOWN' : 'FREE';
      const owner = topic('jobs').get(job)?.user;
      const words = `GPU ${index} of ${name}, ${kind}: ${job ? (job === '?' ? 'in use'
        : `job ${job}${owner ? ` of ${owner}` : ''}`) : node.ill ? node.state.toLowerCase() : 'free'}`;
      const tell = () => this.about.replaceChildren(words, ...(job && job !== '?'
        ? [' · ', link(`/running?find=${job}`, `job ${job}`)] : []));
      return s('rect', { class: `device ${state} ${job ? colour(job) : ''}`, x: index * (SIDE + GAP), y: 0,
        width: SIDE, height: SIDE, rx: 3, tabindex: 0, role: 'img', 'aria-label': words,
        'data-key': `${name}/${index}`, onfocus: tell, onmouseenter: tell });
    });
    return h('section', { class: 'domain', 'data-node': name, 'aria-label': name },
      h('h2', { class: node.ill ? 'bad' : '' }, `${node.ill ? '✕ ' : ''}${name}`),
      s('svg', { width: node.gpus.length * (SIDE + GAP), height: SIDE, role: 'group' }, ...cells),
      h('p', { class: 'quiet' }, `${node.state.toLowerCase()} · ${node.cpus[0]} of ${node.cpus[1]} CPUs`),
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
