// What the server shows, kept up to date by server-sent events. All tabs of a browser share one
// connection, since a browser opens only six to one host.
export const topics = new Map();
const listeners = new Set();
export const status = { connected: false, problem: 'connecting …', updated: 0 };

export function listen(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

export const topic = (name) => topics.get(name) ?? new Map();

function tell(changed) {
  status.updated = Date.now();
  for (const callback of listeners) callback(changed);
}

function take(kind, data) {
  if (kind === 'lost') {
    Object.assign(status, { connected: false, problem: 'The server does not answer. Trying again …' });
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

export function connect() {
  if (globalThis.SharedWorker) {
    const worker = new SharedWorker('/static/worker.js', { name: 'podwright' });
    worker.port.onmessage = ({ data }) => take(data.kind, data.data);
    worker.port.start();
    addEventListener('pagehide', () => worker.port.postMessage('bye'));
    return () => worker.port.postMessage('again');
  }
  let source;
  const open = () => {
    source?.close();
    source = new EventSource('/live');
    for (const kind of ['all', 'change', 'away']) {
      source.addEventListener(kind, ({ data }) => take(kind, data));
    }
    source.onerror = () => take('lost');
  };
  open();
  return open;
}
