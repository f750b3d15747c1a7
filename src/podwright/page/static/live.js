// What the server shows, kept up to date by server-sent events. All tabs of a browser share one
// connection, since a browser opens only six to one host.
import { secret } from './session.js';
import { open } from './stream.js';

export const topics = new Map();
const listeners = new Set();
export const status = { connected: false, problem: 'connecting …', updated: 0 };

export function listen(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

export const topic = (name) => topics.get(name) ?? new Map();

// What is known of a large pod beside the stream: topics, each as a whole.
export function detail(found) {
  for (const [name, items] of Object.entries(found)) topics.set(name, items);
}

function tell(changed) {
  status.updated = Date.now();
  for (const callback of listeners) callback(changed);
}

function take(kind, data) {
  if (kind === 'lost') {
    Object.assign(status, { connected: false, problem: data });
    tell(new Set());
    return;
  }
  const value = JSON.parse(data);
  if (kind === 'away') {
    Object.assign(status, { connected: false, problem: value.problem });
    tell(new Set());
    return;
  }
  Object.assign(status, { connected: true, problem: '' });
  if (kind === 'all') topics.clear();
  for (const [name, items] of Object.entries(value.topics)) {
    if (!topics.has(name)) topics.set(name, new Map());
    const known = topics.get(name);
    for (const [key, item] of Object.entries(items)) {
      if (item === null) known.delete(key);
      else known.set(key, item);
    }
    if (name === 'events') {
      for (const key of known.keys()) {
        if (known.size <= 300) break;
        known.delete(key);
      }
    }
  }
  tell(kind === 'all' ? new Set(topics.keys()) : new Set(Object.keys(value.topics)));
}

// Returns what connects anew, with the session of now.
export function connect() {
  addEventListener('pageshow', ({ persisted }) => { if (persisted) location.reload(); });
  if (globalThis.SharedWorker) {
    const worker = new SharedWorker('/static/worker.js', { name: 'podwright', type: 'module' });
    const send = (what) => worker.port.postMessage({ what, secret: secret() });
    worker.port.onmessage = ({ data }) => take(data.kind, data.data);
    worker.port.start();
    addEventListener('pagehide', () => send('bye'));
    send('hello');
    return () => send('again');
  }
  let source = open(secret(), take);
  return () => {
    source.close();
    source = open(secret(), take);
  };
}
