// A large pod is folded: its link domains come with the stream, in numbers, and what is in one is
// asked for when somebody opens it. Its long tables are asked for in parts.
import { detail, topic } from './live.js';
import { ask } from './session.js';

export const DETAILS = ['devices', 'partitions', 'leases', 'machines', 'readings'];
const TABLES = ['partitions', 'leases', 'machines'];
// The order in which a link domain has its numbers of devices.
const ORDER = ['FREE', 'IN_USE', 'RESERVED', 'RESETTING', 'DRAINED', 'DOWN'];
const AGAIN = 5000; // milliseconds after which what is opened is asked for again
const PART = 200; // rows of a table
const PAUSE = 300; // milliseconds without a key, after which a search begins

export const folded = (source = topic) => source('domains').size > 0;
export const inParts = (name) => folded() && TABLES.includes(name);
export const sizeOf = (counts) => counts.reduce((sum, count) => sum + count, 0);
export const states = (counts) => new Map(ORDER.map((name, at) => [name, counts[at]]).filter(([, count]) => count));
export const deviceCount = (source = topic) =>
  [...source('clusters').values()].reduce((sum, { size }) => sum + size, 0);
export const total = (name, source = topic) => source('totals').get(name)?.count ?? source(name).size;

// The link domains of a folded pod that are opened. address: of a domain's details. changed: called
// when they are there, or are others. keep: whether what acts on things finds the details too.
export class Opened {
  constructor(source, { address, changed, keep }) {
    Object.assign(this, { source, address, changed, keep });
    this.found = new Map();
    this.seen = new Map();
    this.merged = {};
    this.timer = setInterval(() => this.again(), AGAIN);
  }

  topic(name) {
    return folded(this.source) && DETAILS.includes(name) ? this.merged[name] ?? new Map() : this.source(name);
  }

  has(domain) {
    return this.found.has(domain);
  }

  async open(domain) {
    this.seen.set(domain, JSON.stringify(this.source('domains').get(domain)));
    let details;
    try {
      ({ topics: details } = await ask(this.address(domain)));
    } catch {
      return; // the head says that the server does not answer
    }
    if (this.closed) return;
    const text = JSON.stringify(details);
    if (this.found.get(domain)?.text === text) return;
    this.found.set(domain, { text, details });
    this.merged = Object.fromEntries(DETAILS.map((name) => [name, new Map(
      [...this.found.values()].flatMap((one) => Object.entries(one.details[name] ?? {})))]));
    this.share();
    this.changed(domain);
  }

  share() {
    if (this.keep && folded(this.source)) detail(this.merged);
  }

  // After the stream has told something: those whose numbers changed.
  update() {
    this.share();
    for (const domain of this.found.keys()) {
      if (this.seen.get(domain) !== JSON.stringify(this.source('domains').get(domain))) this.open(domain);
    }
  }

  again() {
    for (const domain of this.found.keys()) this.open(domain);
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
  }
}

// A long table of a folded pod, as far as it is loaded. changed: called when rows are there.
export class Parts {
  constructor(name, changed) {
    Object.assign(this, { name, changed, next: '', find: '', count: 0 });
    this.rows = {};
  }

  // Ask after a pause in typing. rows: how many at least.
  search(find, rows = PART) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(find, rows), find === this.find ? 0 : PAUSE);
  }

  more() {
    return this.load(this.find, this.count + PART);
  }

  again() {
    return this.load(this.find, Math.max(PART, this.count));
  }

  async load(find, rows) {
    this.asking?.abort();
    const asking = this.asking = new AbortController();
    const found = {};
    let [count, after] = [0, ''];
    try {
      do {
        const query = new URLSearchParams({ topic: this.name, after, find, limit: PART });
        const part = await ask(`/v1/table?${query}`, { signal: asking.signal });
        for (const [name, items] of Object.entries(part.topics)) found[name] = { ...found[name], ...items };
        count += Object.keys(part.topics[this.name]).length;
        after = part.next;
      } while (after && count < rows);
    } catch {
      return; // another search has begun, or the head says that the server does not answer
    }
    Object.assign(this, { rows: found, next: after, find, count });
    this.share();
    this.changed();
  }

  share() {
    detail(Object.fromEntries(Object.entries(this.rows).map(([name, items]) => [name, new Map(Object.entries(items))])));
  }

  close() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }
}

// One partition of a folded pod: what is known of it, in the topics.
export async function partition(name) {
  const { topics } = await ask(`/v1/table?${new URLSearchParams({ topic: 'partitions', name })}`);
  detail(Object.fromEntries(Object.entries(topics).map(([topicName, items]) => [topicName, new Map(Object.entries(items))])));
}
