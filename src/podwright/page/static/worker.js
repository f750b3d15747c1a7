// One connection to the server for all tabs. A tab that comes later gets the whole from here. Tabs
// bring the session's secret along: a worker has no localStorage.
import { open } from './stream.js';

const ports = new Set();
let source = null;
let topics = null;
let last = null;

function tell(kind, data) {
  for (const port of ports) port.postMessage({ kind, data });
}

function merge(changed) {
  for (const [name, items] of Object.entries(changed)) {
    topics[name] ??= {};
    for (const [key, item] of Object.entries(items)) {
      if (item === null) delete topics[name][key];
      else topics[name][key] = item;
    }
  }
}

function heard(kind, data) {
  if (kind === 'all') topics = JSON.parse(data).topics;
  else if (kind !== 'change') topics = null;
  else if (topics === null) return;
  else merge(JSON.parse(data).topics);
  last = kind === 'all' || kind === 'change' ? null : { kind, data };
  tell(kind, data);
}

function connect(secret) {
  source?.close();
  topics = last = null;
  source = open(secret, heard);
  source.secret = secret;
}

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data: { what, secret } }) => {
    if (what === 'bye') {
      ports.delete(port);
      if (ports.size === 0) {
        source?.close();
        source = null;
      }
    } else if (source === null || source.secret !== secret || what === 'again') connect(secret);
    else if (last !== null) port.postMessage(last);
    else if (topics !== null) port.postMessage({ kind: 'all', data: JSON.stringify({ topics }) });
  };
};
