// The page of a server: its views, and who is logged in.
import { me, send } from './act.js';
import { h, link } from './dom.js';
import { connect, listen, status } from './live.js';
import { Pod } from './pod.js';
import { Problems } from './problems.js';
import { ask, keep, onchange } from './session.js';
import { start } from './shell.js';
import { Time } from './time.js';
import { Login, Partition, line, table } from './views.js';

const named = (name, title) => [name, [title, (host, address, key) =>
  (name === 'partitions' && key ? new Partition(host, key) : table(name)(host, address))]];
const shell = start({
  pod: ['Pod', (host, address) => new Pod(host, address)],
  line: ['Queue', line],
  ...Object.fromEntries([named('partitions', 'Partitions'), named('machines', 'Machines')]),
  problems: ['Problems', (host) => new Problems(host)],
  time: ['Time', (host, address) => new Time(host, address)],
  ...Object.fromEntries([named('leases', 'Leases'), named('allocations', 'Allocations'), named('quotas', 'Quotas'),
    named('users', 'Users'), named('events', 'Events')]),
  login: ['Log in', (host) => new Login(host, enter)],
}, ['pod', 'line', 'partitions', 'machines'], ['login']);

async function head() {
  try {
    Object.assign(me, await ask('/me'));
  } catch {
    return; // the head says that the server does not answer
  }
  const who = document.getElementById('who');
  who.replaceChildren(
    ...(me.simulated ? [h('span', { class: 'simulated' }, 'SIMULATED'), ' '] : []),
    ...(me.name && me.name !== 'anonymous'
      ? [`${me.name} `, h('span', { class: 'role' }, `(${me.role}) `), h('button', { onclick: leave }, 'Log out')]
      : [link('/login', 'Log in')]));
}

async function leave() {
  await send('DELETE', '/session');
  keep('');
  await anew();
}

async function enter(session) {
  keep(session.secret);
  await head();
  again();
  shell.go('/pod');
}

async function anew() {
  await head();
  again();
  shell.show();
}

const again = connect();
onchange(anew);
// A server that was away has forgotten its sessions: the head asks whom it knows now.
let connected = false;
listen(() => {
  if (status.connected && !connected) head().then(() => shell.draw());
  connected = status.connected;
});
head().then(() => shell.draw());
