// The page of a server: its views, and who is logged in.
import { me, send } from './act.js';
import { h, link } from './dom.js';
import { connect } from './live.js';
import { Pod } from './pod.js';
import { start } from './shell.js';
import { Time } from './time.js';
import { Login, Partition, line, table } from './views.js';

const named = (name, title) => [name, [title, (host, address, key) =>
  (name === 'partitions' && key ? new Partition(host, key) : table(name)(host, address))]];
const shell = start({
  pod: ['Pod', (host, address) => new Pod(host, address)],
  line: ['Waiting line', line],
  ...Object.fromEntries([named('partitions', 'Partitions'), named('leases', 'Leases'),
    named('machines', 'Machines'), named('allocations', 'Allocations'), named('quotas', 'Quotas'),
    named('users', 'Users'), named('events', 'Events')]),
  time: ['Time', (host, address) => new Time(host, address)],
  login: ['Log in', (host) => new Login(host, enter)],
}, 'pod', ['login']);

async function head() {
  const answer = await fetch('/me');
  Object.assign(me, await answer.json());
  const who = document.getElementById('who');
  who.replaceChildren(
    ...(me.simulated ? [h('span', { class: 'simulated' }, 'SIMULATED'), ' '] : []),
    ...(me.name && me.name !== 'anonymous'
      ? [`${me.name} (${me.role}) `, h('button', { onclick: leave }, 'Log out')]
      : [link('/login', 'Log in')]));
}

async function leave() {
  await send('DELETE', '/session');
  await head();
  again();
  shell.show();
}

async function enter() {
  await head();
  again();
  shell.go('/pod');
}

const again = connect();
head().then(() => shell.draw());
