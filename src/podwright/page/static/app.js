// Which view is shown, by its address, and the head of the page.
import { me, send } from './act.js';
import { h, link } from './dom.js';
import { connect, listen, status } from './live.js';
import { Pod } from './pod.js';
import { Time } from './time.js';
import { Login, Partition, line, table } from './views.js';

const VIEWS = { pod: 'Pod', line: 'Waiting line', partitions: 'Partitions', leases: 'Leases',
  machines: 'Machines', allocations: 'Allocations', quotas: 'Quotas', users: 'Users', events: 'Events',
  time: 'Time' };
const main = document.getElementById('main');
let view = null;

function show() {
  const [, name = '', key = ''] = location.pathname.split('/');
  const address = new URLSearchParams(location.search);
  view?.close?.();
  const host = h('div');
  main.replaceChildren(host);
  const chosen = name in VIEWS || name === 'login' ? name : 'pod';
  if (chosen === 'login') view = new Login(host, enter);
  else if (chosen === 'partitions' && key) view = new Partition(host, decodeURIComponent(key));
  else if (chosen === 'pod') view = new Pod(host, address);
  else if (chosen === 'time') view = new Time(host, address);
  else if (chosen === 'line') view = line(host, address);
  else view = table(chosen)(host, address);
  document.title = `${view.title} · Podwright`;
  for (const item of document.querySelectorAll('#views a')) {
    if (item.pathname === `/${chosen}`) item.setAttribute('aria-current', 'page');
    else item.removeAttribute('aria-current');
  }
}

function go(path) {
  history.pushState(null, '', path);
  show();
  main.focus({ preventScroll: true });
}

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
  show();
}

async function enter() {
  await head();
  again();
  go('/pod');
}

document.getElementById('views').append(...Object.entries(VIEWS).map(([name, text]) => link(`/${name}`, text)));
document.addEventListener('click', (event) => {
  const found = event.target.closest?.('a[href^="/"]');
  if (found && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    go(found.getAttribute('href'));
  }
});
addEventListener('popstate', show);

const state = document.getElementById('state');
listen((changed) => {
  const text = status.connected ? 'live' : status.problem;
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle('away', !status.connected);
  main.classList.toggle('stale', !status.connected);
  if (changed.size && view?.topics.some((name) => changed.has(name))) view.update(changed);
});

show();
const again = connect();
head().then(() => view?.draw?.());
