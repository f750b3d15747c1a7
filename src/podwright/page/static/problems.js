// What needs somebody, above everything else: a line for each, with its cause and a command.
import { h, link, since } from './dom.js';

const FEW = 3; // problems of one kind that are shown before the rest folds

// By kind: what the filter calls it.
const KINDS = {
  'silent-agent': 'does not answer', 'wrong-key': 'wrong key', 'refused-machine': 'not used by the server',
  'partition-error': 'partition in error', fence: 'fenced', 'ill-device': 'ill device', cable: 'cable',
  'drained-used': 'drained, in use', 'drained-empty': 'drained, empty',
};

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

function line(problem) {
  return h('li', { class: problem.urgent ? 'urgent' : 'minor', 'data-kind': problem.kind },
    problem.link ? link(problem.link, problem.text) : problem.text, h('span', {}, `: ${problem.cause}`,
      problem.since ? ` (for ${since(Date.now() / 1000 - problem.since)})` : ''), ' ', h('code', {}, problem.command));
}

export function problemStrip(source) {
  const all = [...source('problems').values()];
  const kinds = new Map();
  for (const problem of all) kinds.set(problem.kind, [...(kinds.get(problem.kind) ?? []), problem]);
  const lines = [...kinds.values()].flatMap((found) => [...found.slice(0, FEW).map(line),
    ...(found.length > FEW ? [h('li', {}, h('details', {}, h('summary', {}, `${found.length - FEW} more like the last`),
      h('ul', {}, ...found.slice(FEW).map(line))))] : [])]);
  return h('section', { class: 'problems', 'aria-label': 'Problems' }, ...(all.length
    ? [h('h2', {}, `${all.length} ${all.length === 1 ? 'problem' : 'problems'}`), h('ul', {}, ...lines)] : []));
}
