// The thing that is selected on the pod: whose it is, since and until when, where, what happened to
// it, and what can be done with it.
import { drain, drainOf, remove, reset } from './acts.js';
import { administrator, mine } from './act.js';
import { STATES } from './colours.js';
import { h, link, since, time, whom } from './dom.js';

const HISTORY = 5;
// What a driver measures, in words.
const READINGS = { load: 'Use', 'memory used': 'Memory used', power: 'Power', temperature: 'Temperature',
  'ecc errors': 'Memory errors', 'row remapping': 'Row remapping', 'last xid': 'Last error (XID)', problems: 'Fault' };

// Why a machine is drained, in words.
const reasonOf = ({ reason, who }) => [reason || 'no reason was given', ...(who ? [`by ${who}`] : [])].join(', ');

// A device in words. drained: whether its machine takes nothing new.
export function words(key, device, partition, lease, drained) {
  const [cluster, domain, offset] = key.split('/');
  const text = [`device ${offset} of link domain ${domain}, ${cluster}: ${device[0]} index ${device[1]}`];
  const state = (STATES[device[2]] ?? device[2].toLowerCase());
  if (partition) {
    text.push(`${state}${device[2] === 'IN_USE' ? ' by' : ', of'} partition ${device[3]}` + (partition.owner ? ` of ${partition.owner}` : ''));
    if (partition.state === 'ERROR') text.push('which is in error');
    if (partition.job) text.push(`job ${partition.job}`);
    text.push(`since ${new Date(partition.created * 1000).toLocaleString()}`);
    if (partition.until) text.push(`until ${new Date(partition.until * 1000).toLocaleString()}`);
    if (lease) text.push(`held by ${lease.holder || lease.owner}`);
    if (lease?.move) text.push('asked to move');
  } else if (device[3]) text.push(`${state}${device[2] === 'IN_USE' ? ' by' : ', of'} partition ${device[3]}`);
  else text.push(state);
  if (drained && device[2] !== 'DRAINED') text.push('its machine is drained');
  if (device[5]) text.push(`kept for ${whom(device[5])}`);
  return text.join(', ');
}

export class Selected {
  // acts: whether something can be done; what was can only be looked at.
  constructor(host, source, { acts }) {
    Object.assign(this, { host, source, acts, key: '' });
    this.draw();
  }

  show(key) {
    this.key = key;
    this.shown = '';
    this.draw();
  }

  draw() {
    const device = this.source('devices').get(this.key);
    if (!device) {
      if (this.shown === 'none') return;
      this.shown = 'none';
      this.host.replaceChildren(h('h2', {}, 'Selected'),
        h('p', { class: 'quiet' }, 'Click a device, or walk to it by the arrow keys and press Enter.'));
      return;
    }
    const [machine, index, state, name, allocation, kept] = device;
    const partition = this.source('partitions').get(name);
    const leases = [...this.source('leases')].filter(([, lease]) => lease.partition === name && name);
    const known = this.source('machines').get(machine);
    const cluster = this.source('clusters').get(this.key.split('/')[0]);
    const drained = cluster?.drained?.includes(machine);
    const why = drained && drainOf(machine, this.source);
    const events = [...this.source('events').values()]
      .filter(({ about }) => about.split(' ').some((word) => word === machine || (name && word === name))).slice(-HISTORY).reverse();
    const readings = this.source('readings').get(this.key) ?? {};
    const shown = JSON.stringify([this.acts, device, readings, partition, leases, known, why, events, Math.floor(Date.now() / 60000)]);
    if (shown === this.shown) return;
    this.shown = shown;
    const rows = [['State', STATES[state] ?? state], ['Machine', `${machine}, device ${index}${drained ? ', drained' : ''}`],
      ...(why ? [['Drained', h('span', {}, reasonOf(why), ...(why.at ? [', ', time(why.at)] : []))]] : []),
      ...(known && known.state !== 'UP' ? [['Machine is', `${known.state}: ${known.reason}`]] : []),
      ...(kept ? [['Kept for', whom(kept)]] : []),
      ...(partition ? [
        ['Partition', link(`/partitions/${encodeURIComponent(name)}`, name)],
        ['Owner', partition.owner || 'nobody'], ...(partition.job ? [['Job', partition.job]] : []),
        ...(partition.size ? [['Devices', String(partition.size)]] : []),
        ['Since', h('span', {}, time(partition.created), ` (${since(Date.now() / 1000 - partition.created)})`)],
        ['Until', partition.until ? time(partition.until) : 'no end is known'],
        ...(this.acts || leases.length ? [['Held by', leases.map(([, lease]) => lease.holder || lease.owner).join(', ') || 'nobody']] : []),
        ...(partition.errors?.length ? [['Error', partition.errors.join('; ')]] : []),
      ] : name ? [['Partition', name]] : []),
      ...(allocation ? [['Allocation', allocation]] : []),
      ...Object.entries(READINGS).filter(([name]) => name in readings).map(([name, title]) => [title, readings[name]])];
    const buttons = !this.acts ? [] : [
      ...(partition && mine(partition.owner) ? [reset(name), remove(name)] : []),
      ...(administrator() ? [drain(machine)] : [])];
    this.host.replaceChildren(h('h2', {}, partition ? `Partition ${name}` : `Device ${index} of ${machine}`),
      h('dl', { class: 'facts' }, ...rows.flatMap(([title, value]) => [h('dt', {}, title), h('dd', {}, value)])),
      ...(events.length ? [h('h3', {}, 'What happened'), h('ul', { class: 'history' }, ...events.map((event) =>
        h('li', {}, time(event.at), ` ${event.what} by ${event.who}`, event.outcome === 'OK' ? '' : `: ${event.outcome}`)))] : []),
      ...(buttons.length ? [h('p', { class: 'controls' }, ...buttons)] : []));
  }
}
