// What can be done here: asked once more, with what it will end, and the command that does the same.
import { h } from './dom.js';
import { folded } from './folded.js';
import { topic } from './live.js';
import { ask as request } from './session.js';

export const me = { name: '', role: '', key_login: true };

export const send = (method, path, value) => request(path, { method, value });

export const administrator = () => me.role === 'administrator';
export const mine = (owner) => administrator() || (me.role === 'user' && owner === me.name);

export function button(text, key, question) {
  return h('button', { 'data-focus': `${text} ${key}`, onclick: () => ask(text, question()) }, text);
}

// ask: a field of the request that is asked for, and its label.
function ask(text, { title, lines, command, method, request, ask: field, yes: label = text }) {
  const dialog = document.getElementById('ask');
  const value = field ? h('input', { id: field[0], maxlength: 200, autofocus: true }) : null;
  const said = h('p', { role: 'alert' });
  const yes = h('button', { class: 'bad', id: 'yes', onclick: async () => {
    yes.disabled = true;
    said.textContent = 'under way …';
    try {
      await send('POST', '/act', { method, request: field ? { ...request, [field[0]]: value.value.trim() } : request });
      dialog.close();
    } catch (error) {
      said.textContent = error.message;
      yes.disabled = false;
    }
  } }, label);
  dialog.replaceChildren(h('h2', { id: 'ask-title' }, title), ...lines.map((line) => h('p', {}, line)),
    ...(field ? [h('p', { class: 'field' }, h('label', { for: field[0] }, field[1]), value)] : []),
    h('p', { class: 'quiet' }, 'the same: ', h('code', {}, command)), said,
    h('p', { class: 'controls' }, yes, h('button', { autofocus: !field, onclick: () => dialog.close() }, 'Leave it')));
  dialog.showModal();
}

export const isHeld = (name) => [...topic('leases').values()].some((lease) => lease.partition === name);

// What removing or resetting a partition ends, in words.
export function ended(partition) {
  const leases = [...topic('leases')].filter(([, lease]) => lease.partition === partition);
  if (!leases.length) return ['Nobody holds it.'];
  return leases.map(([id, lease]) =>
    `This is held: lease ${id} of ${lease.holder || lease.owner}${lease.hosts.length ? ` on ${lease.hosts.join(', ')}` : ''}.`);
}

export function standing(machine) {
  const known = [...topic('devices').values()].some((device) => device[0] === machine);
  if (folded() && !known) return ['What runs there goes on. Nothing new is placed there.'];
  const names = new Set();
  for (const device of topic('devices').values()) if (device[0] === machine && device[3]) names.add(device[3]);
  return names.size
    ? [`What runs there goes on: ${[...names].join(', ')}. Nothing new is placed there.`]
    : ['Nothing runs there. Nothing new is placed there.'];
}
