// The acts of the page, a button each.
import { button, ended, isHeld, standing } from './act.js';
import { topic } from './live.js';

const force = (name) => (isHeld(name) ? { force: true } : {});

export const remove = (name) => button('Remove', name, () => ({
  title: `Remove partition ${name}?`, lines: ended(name),
  command: `vipu remove partition ${name}${isHeld(name) ? ' --force' : ''}`,
  yes: isHeld(name) ? 'End this and remove' : 'Remove',
  method: 'RemovePartition', request: { name, ...force(name) } }));

export const reset = (name) => button('Reset', name, () => ({
  title: `Reset partition ${name}?`, lines: ended(name),
  command: `vipu reset partition ${name}${isHeld(name) ? ' --force' : ''}`,
  yes: isHeld(name) ? 'End this and reset' : 'Reset',
  method: 'ResetPartition', request: { name, ...force(name) } }));

export const drained = (machine) =>
  [...topic('clusters').values()].some((cluster) => cluster.drained.includes(machine));

// Why a machine is drained, and who drained it when; nothing of one that serves.
export const drainOf = (machine, source = topic) =>
  [...source('clusters').values()].map(({ drains }) => drains?.[machine]).find(Boolean);

export const drain = (machine) => (drained(machine)
  ? button('Resume', machine, () => ({ title: `Let machine ${machine} serve again?`, lines: [],
    command: `vipu-admin resume machine ${machine}`, method: 'ResumeMachine', request: { name: machine } }))
  : button('Drain', machine, () => ({ title: `Drain machine ${machine}?`, lines: standing(machine),
    command: `vipu-admin drain machine ${machine} --reason TEXT`, method: 'DrainMachine', request: { name: machine },
    ask: ['reason', 'Reason, for everybody who sees that it is drained'] })));
