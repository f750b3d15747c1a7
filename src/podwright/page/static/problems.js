// What needs somebody, above everything else: a line for each, with its cause and a command.
import { h, link, since } from './dom.js';
import { total } from './folded.js';
import { topic } from './live.js';

// By kind: what the filter calls it.
const KINDS = {
  'silent-agent': 'does not answer', 'wrong-key': 'wrong key', 'refused-machine': 'not used by the server',
  'partition-error': 'partition in error', fence: 'fenced', 'ill-device': 'ill device', cable: 'cable',
  'drained-used': 'drained, in use', 'drained-empty': 'drained, empty',
};
const SCREEN = 14, PHONE = 4; // lines that are shown before the rest is a link
const narrow = () => matchMedia('(max-width: 40rem)').matches;

// What a list of problems has of devices: the kinds to choose from.
export const deviceProblems = (source) => {
  const kinds = new Set([...source('problems').values()].filter(({ machine, partition }) => machine || partition)
    .map(({ kind }) => kind));
  return Object.entries(KINDS).filter(([kind]) => kinds.has(kind));
};

// A test of devices: whether one has a problem of this kind; `any`: a problem of any kind.
export function hasProblem(source, kind) {
  const [machines, partitions, keys] = [new Set(), new Set(), new Set()];
  for (const problem of source('problems').values()) {
    if (kind !== 'any' && problem.kind !== kind) continue;
    if (problem.devices?.length) problem.devices.forEach((key) => keys.add(key));
    else if (problem.machine) machines.add(problem.machine);
    if (problem.partition) partitions.add(problem.partition);
  }
  return (key, device) => keys.has(key) || machines.has(device[0]) || partitions.has(device[3]);
}

const line = (problem) => h('li', { class: problem.gravity, 'data-kind': problem.kind },
  h('p', {}, ...(problem.gravity === 'everybody' ? [h('strong', { class: 'tag' }, 'stops everybody'), ' '] : []),
    problem.link ? link(problem.link, problem.text) : h('strong', {}, problem.text), h('span', {}, `: ${problem.cause}`,
      problem.since ? ` (for ${since(Date.now() / 1000 - problem.since)})` : '')),
  h('code', {}, problem.command));

// So many problems: the first of each kind, then the gravest.
function first(all, most) {
  const firsts = all.filter(({ kind }, at) => all.findIndex((one) => one.kind === kind) === at);
  const shown = new Set([...new Set([...firsts, ...all])].slice(0, most));
  return all.filter((one) => shown.has(one));
}

const count = (source) => {
  const all = total('problems', source);
  return `${all} ${all === 1 ? 'problem' : 'problems'}`;
};

export function problemStrip(source) {
  const all = [...source('problems').values()];
  const shown = first(all, narrow() ? PHONE : SCREEN);
  const more = total('problems', source) - shown.length;
  return h('section', { class: 'problems', 'aria-label': 'Problems' }, ...(all.length ? [h('h2', {}, count(source)),
    h('ul', {}, ...shown.map(line), ...(more ? [h('li', { class: 'more' }, link('/problems', `${more} more`))] : []))] : []));
}

// All of them.
export class Problems {
  title = 'Problems';
  topics = ['problems', 'totals'];

  constructor(host) {
    this.host = host;
    this.update();
  }

  update() {
    const all = [...topic('problems').values()];
    const more = total('problems') - all.length;
    this.host.replaceChildren(h('h1', {}, 'Problems'), h('section', { class: 'problems', 'aria-label': 'All problems' },
      h('h2', {}, count(topic)), h('ul', {}, ...all.map(line),
        ...(more ? [h('li', { class: 'more' }, `${more} more of the kinds above`)] : []))));
  }
}
