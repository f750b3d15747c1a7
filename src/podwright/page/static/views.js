// What each view shows.
import { administrator, button, mine, send, me } from './act.js';
import { drain, drainOf, drained, remove, reset } from './acts.js';
import { h, link, since, time } from './dom.js';
import { folded, partition as load } from './folded.js';
import { topic } from './live.js';
import { Table } from './table.js';

const wrong = (text, good) => (good.includes(text) ? text : h('span', { class: 'bad' }, text));
const partition = (name) => (name ? link(`/partitions/${encodeURIComponent(name)}`, name) : '');
const ago = (seconds) => (seconds ? since(Date.now() / 1000 - seconds) : '');

const TABLES = {
  partitions: {
    title: 'Partitions', same: 'vipu list partitions', empty: 'There is no partition. vipu create partition NAME --size 4 makes one.',
    columns: [
      ['Partition', (key) => partition(key)],
      ['Devices', (_, p) => p.size, { number: true }],
      ['GCDs', (_, p) => p.gcds, { number: true }],
      ['Link domains', (_, p) => p.domains.join(' ')],
      ['Allocation', (_, p) => p.allocation],
      ['Owner', (_, p) => p.owner],
      ['Job', (_, p) => p.job],
      ['State', (_, p) => wrong(p.state, ['ACTIVE', 'PENDING'])],
      ['Doing', (_, p) => (p.operation === 'IDLE' ? '' : p.operation.toLowerCase())],
      ['For', (_, p) => ago(p.created), { sort: (_, p) => -p.created }],
    ],
    act: (key, p) => (mine(p.owner) ? [reset(key), ' ', remove(key)] : []),
  },
  leases: {
    title: 'Leases', same: 'vipu list leases', empty: 'Nobody holds a lease. A launch with poprun takes one.',
    columns: [
      ['Lease', (key) => key], ['Partition', (_, l) => partition(l.partition)],
      ['Holder', (_, l) => l.holder], ['Owner', (_, l) => l.owner],
      ['State', (_, l) => wrong(l.state, ['HELD'])],
      ['Waits for', (_, l) => l.waits_for.join(', ')],
      ['Hosts', (_, l) => l.hosts.join(' ')],
      ['Epoch', (_, l) => l.epoch, { number: true }],
    ],
  },
  machines: {
    title: 'Machines', same: 'vipu-admin list machines', empty: 'There is no machine yet. vipu-admin create agent NAME --host HOST registers one.',
    also: ['clusters'], // they know which are drained
    columns: [
      ['Machine', (key) => key], ['Cluster', (_, m) => m.cluster], ['Family', (_, m) => m.family],
      ['Devices', (_, m) => m.devices, { number: true }],
      ['State', (key, m) => wrong(drained(key) ? `${m.state}, drained` : m.state, ['UP'])],
      ['Reason', (key, m) => m.reason || drainOf(key)?.reason], ['Software', (_, m) => m.software], ['Host', (_, m) => m.host],
    ],
    act: (key) => (administrator() ? [drain(key)] : []),
  },
  allocations: {
    title: 'Allocations', same: 'vipu list allocations', empty: 'There is no allocation. vipu-admin create allocation NAME --size 16 makes one.',
    columns: [
      ['Allocation', (key) => key], ['Cluster', (_, a) => a.cluster],
      ['Devices', (_, a) => a.size, { number: true }], ['Free', (_, a) => a.free, { number: true }],
      ['Machines', (_, a) => a.machines.join(' ')], ['Scheduler', (_, a) => a.scheduler],
      ['Owner', (_, a) => a.owner],
    ],
  },
  quotas: {
    title: 'Quotas', same: 'vipu list quotas', empty: 'There is no quota: everybody may use all that is free. vipu-admin set quota limits that.',
    columns: [
      ['User', (_, q) => q.user || 'everybody'], ['Allocation', (_, q) => q.allocation || 'all'],
      ['Devices', (_, q) => `${q.used_devices} of ${q.devices < 0 ? 'any' : q.devices}`],
      ['Partitions', (_, q) => `${q.used_partitions} of ${q.partitions < 0 ? 'any' : q.partitions}`],
    ],
  },
  users: {
    title: 'Users', same: 'vipu-admin list users', empty: 'There is no user, or you may not see them. vipu-admin create user NAME makes one.',
    columns: [
      ['User', (key) => key], ['Role', (_, u) => u.role],
      ['Allocations', (_, u) => u.allocations.join(' ') || 'all'],
      ['Created', (_, u) => time(u.created), { sort: (_, u) => u.created }],
    ],
  },
  events: {
    title: 'Events', same: 'vipu events', empty: 'Nothing has happened that you may see. Log in to see what is yours.',
    down: true,
    columns: [
      ['When', (_, e) => time(e.at), { sort: (key) => Number(key) }],
      ['Who', (_, e) => e.who], ['What', (_, e) => e.what], ['About', (_, e) => e.about],
      ['Outcome', (_, e) => wrong(e.outcome, ['OK'])], ['Detail', (_, e) => e.detail],
    ],
  },
};

export const table = (name) => (host, address) => new Table(host, address, { name, ...TABLES[name] });

// Schedulers' jobs have places of their own: each scheduler decides who is next of its jobs.
const jobs = (host) => new Table(host, new URLSearchParams(), {
  title: 'Jobs of schedulers', level: 'h2', name: 'jobs', same: 'vipu list queue', id: 'jobs',
  empty: 'No job waits for devices.',
  columns: [
    ['Place', (_, j) => j.place, { number: true }], ['Job', (_, j) => j.job],
    ['Scheduler', (_, j) => j.scheduler], ['Who', (_, j) => j.owner],
    ['Asked for', (_, j) => j.asked], ['Needs', (_, j) => j.needs],
    ['Kept for it', (_, j) => j.reserved, { number: true }],
    ['Waits', (_, j) => ago(j.since), { sort: (_, j) => -j.since }],
    ['Can start', (_, j) => (j.starts ? time(j.starts) : 'not known')],
    ['Priority', (_, j) => j.priority, { number: true }],
  ],
});

// Those for whom a place is kept: it is their turn, whatever comes behind them. What others wait for.
function turn() {
  const kept = [...topic('waiters')].map(([key, item]) => [key, `request ${key}`, 'people', item])
    .concat([...topic('jobs')].map(([key, item]) => [key, `job ${item.job}`, item.scheduler, item]))
    .filter(([, , , { reserved }]) => reserved);
  return kept.length ? [h('h2', {}, 'Whose turn it is'), h('ul', {}, ...kept.map(([key, name, guest, item]) => h('li', {},
    h('strong', {}, item.owner || 'somebody'), ` (${guest}), ${name}: ${item.asked}; `, h('strong', {}, `${item.reserved} devices are kept`),
    item.starts ? h('span', {}, ', all are expected to be free at ', time(item.starts)) : '', '. ',
    link(`/pod?way=${encodeURIComponent(key)}`, 'show the place'))))] : [];
}

export function line(host, address) {
  const [ours, turns, theirs] = [h('div'), h('section', { class: 'turns', 'aria-label': 'Whose turn it is' }), h('div', { id: 'jobs' })];
  host.replaceChildren(ours, turns, theirs);
  const first = own(ours, address);
  let second = null;
  // Where no scheduler says anything, nothing is said of one.
  const show = () => {
    if (!second && topic('jobs').size) second = jobs(theirs);
    turns.replaceChildren(...turn());
  };
  show();
  return { title: first.title, topics: ['waiters', 'jobs'],
    update(changed) { first.update(changed); show(); second?.update(changed); },
    draw() { first.draw(); second?.draw(); },
    close() { first.close(); second?.close(); } };
}

const own = (host, address) => new Table(host, address, {
  title: 'Queue', name: 'waiters', same: 'vipu list waiters',
  empty: 'Nobody waits. vipu create partition NAME --size 16 --wait waits until that many devices are free.',
  columns: [
    ['Place', (_, w) => w.place, { number: true }], ['Who', (_, w) => w.owner],
    ['Asked for', (_, w) => w.asked], ['State', (_, w) => w.state.toLowerCase()],
    ['Needs', (_, w) => w.needs],
    ['In the way', (key) => link(`/pod?way=${encodeURIComponent(key)}`, 'show on the pod'), { sort: () => '' }],
    ['Kept for it', (_, w) => w.reserved, { number: true }],
    ['Waits', (_, w) => ago(w.since), { sort: (_, w) => -w.since }],
    ['Can start', (_, w) => (w.starts ? time(w.starts) : 'not known')],
    ['Priority', (_, w) => w.priority, { number: true }],
  ],
  act: (key, w) => (mine(w.owner) ? [button('Cancel', key, () => ({
    title: `Take ${w.owner}'s request out of the queue?`, lines: [w.asked],
    command: `vipu remove waiter ${key}`, method: 'Leave', request: { id: key } }))] : []),
});

// One partition, whole.
export class Partition {
  constructor(host, name) {
    Object.assign(this, { host, name, title: `Partition ${name}` });
    this.topics = ['partitions', 'leases', 'devices', 'domains', 'totals'];
    this.update();
    this.timer = setInterval(() => { if (folded()) this.update(); }, 5000);
  }

  // Of a large pod it is asked for; the first answer says also that there is none of the name.
  async update() {
    if (folded() && !this.asking) {
      this.asking = true;
      try {
        await load(this.name);
        this.asked = true;
      } catch { /* the head says that the server does not answer */ }
      this.asking = false;
    }
    if (!folded() || this.asked) this.draw();
  }

  close() {
    clearInterval(this.timer);
  }

  draw() {
    const p = topic('partitions').get(this.name);
    if (!p) {
      this.host.replaceChildren(h('h1', {}, `Partition ${this.name}`),
        h('p', {}, 'There is none of this name now. ', link('/partitions', 'All partitions')));
      return;
    }
    const rows = [
      ['State', wrong(p.state, ['ACTIVE', 'PENDING'])], ['Doing', p.operation.toLowerCase()],
      ['Devices', p.size], ['GCDs', p.gcds], ['Replicas', p.replicas], ['Cluster', p.cluster],
      ['Allocation', p.allocation], ['Link domains', p.domains.join(' ')], ['Owner', p.owner],
      ['Job', p.job || 'none'], ['Created', time(p.created)],
      ['Until', p.until ? time(p.until) : 'not said'], ['Reset by itself', `${p.resets} times`],
    ];
    const machines = new Map();
    for (const [, device] of topic('devices')) {
      if (device[3] === this.name) machines.set(device[0], [...(machines.get(device[0]) ?? []), device[1]]);
    }
    const leases = [...topic('leases')].filter(([, lease]) => lease.partition === this.name);
    this.host.replaceChildren(h('h1', {}, `Partition ${this.name}`),
      ...p.errors.map((error) => h('p', { class: 'bad', role: 'alert' }, error)),
      h('table', {}, h('tbody', {}, ...rows.map(([title, value]) =>
        h('tr', {}, h('th', { scope: 'row' }, title), h('td', {}, typeof value === 'number' ? String(value) : value))))),
      h('h2', {}, 'Where'),
      h('ul', {}, ...[...machines].map(([machine, indices]) =>
        h('li', {}, `${machine}: ${indices.sort((a, b) => a - b).join(', ')}`))),
      h('h2', {}, 'Held by'),
      leases.length ? h('ul', {}, ...leases.map(([id, lease]) =>
        h('li', {}, `${id}: ${lease.holder || lease.owner}${lease.state === 'HELD' ? '' : ` (${lease.state}: ${lease.waits_for.join(', ')})`}`)))
        : h('p', {}, 'nobody'),
      h('p', { class: 'quiet' }, 'the same: ', h('code', {}, `vipu get partition ${this.name}`)),
      ...(mine(p.owner) ? [h('p', { class: 'controls' }, reset(this.name), remove(this.name))] : []));
  }
}

// Log in by an access key; a one-time link comes here with its token behind the #.
export class Login {
  title = 'Log in';
  topics = [];

  constructor(host, again) {
    const said = h('p', { role: 'alert' });
    const enter = async (value) => {
      said.textContent = 'logging in …';
      try {
        await again(await send('POST', '/session', value));
      } catch (error) {
        said.textContent = error.message;
      }
    };
    const token = new URLSearchParams(location.hash.slice(1)).get('token');
    history.replaceState(null, '', '/login');
    const user = h('input', { id: 'user', autocomplete: 'username' });
    const key = h('input', { id: 'key', type: 'password', autocomplete: 'current-password' });
    host.replaceChildren(h('h1', {}, 'Log in'), said,
      h('p', {}, 'On the server\'s machine, ', h('code', {}, 'podwright web'), ' opens this page with you logged in.'),
      ...(me.key_login ? [h('form', { class: 'controls', onsubmit: (event) => {
        event.preventDefault();
        enter({ user: user.value, key: key.value });
      } }, h('label', { for: 'user' }, 'User '), user, h('label', { for: 'key' }, 'Access key '), key,
      h('button', {}, 'Log in'))]
        : [h('p', {}, 'Access keys do not travel here, since others could read them on the way.')]));
    if (token) enter({ token });
  }

  update() {}
}
