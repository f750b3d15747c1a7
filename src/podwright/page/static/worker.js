// One connection to the server for all tabs. A tab that comes later gets the whole from here.
const ports = new Set();
let source = null;
let retry = 0;
let topics = null;
let last = null;

function tell(kind, data) {
  for (const port of ports) port.postMessage({ kind, data });
}

function merge(told) {
  for (const [name, items] of Object.entries(told)) {
    topics[name] ??= {};
    for (const [key, item] of Object.entries(items)) {
      if (item === null) delete topics[name][key];
      else topics[name][key] = item;
    }
  }
}

function open() {
  source?.close();
  clearTimeout(retry);
  topics = null;
  source = new EventSource('/live');
  source.addEventListener('all', ({ data }) => {
    topics = JSON.parse(data).topics;
    last = null;
    tell('all', data);
  });
  source.addEventListener('change', ({ data }) => {
    if (topics === null) return;
    merge(JSON.parse(data).topics);
    tell('change', data);
  });
  source.addEventListener('away', ({ data }) => {
    last = { kind: 'away', data };
    tell('away', data);
  });
  source.onerror = () => {
    last = { kind: 'lost', data: '' };
    tell('lost', '');
    // A browser gives up where it was refused; what was refused now may be granted later.
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, 2000);
  };
}

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data === 'again') open();
    if (data === 'bye') {
      ports.delete(port);
      if (ports.size === 0) {
        source?.close();
        source = null;
      }
    }
  };
  if (source === null) open();
  else if (last !== null) port.postMessage(last);
  else if (topics !== null) port.postMessage({ kind: 'all', data: JSON.stringify({ topics }) });
};
