// A table over a topic: search, order, address, at most so many rows drawn.
import { h, whenReleased } from './dom.js';
import { Parts, inParts, total } from './folded.js';
import { topic } from './live.js';

const ROWS = 200;

export class Table {
  // columns: [title, (key, item) => text or node, { number, sort }]
  constructor(host, address, { title, name, columns, same, empty, act, also = [],
    first = 0, down = false, level = 'h1', id = '' }) {
    Object.assign(this, { title, columns, act, empty, name, id });
    this.topics = [name, 'totals', ...also];
    this.find = address.get('find') ?? '';
    this.order = Number(address.get('order') ?? first);
    this.down = (address.get('down') ?? String(down)) === 'true';
    this.most = ROWS;
    this.path = location.pathname;
    const find = h('input', { id: `${id}find`, type: 'search', value: this.find,
      oninput: () => { this.find = find.value; this.keep(); if (!this.inParts()) this.draw(); } });
    this.caption = h('caption');
    this.heads = columns.map(([text, , options], index) => {
      const button = h('button', { type: 'button', onclick: () => {
        this.down = this.order === index ? !this.down : false;
        this.order = index;
        this.keep();
        this.draw();
      } }, text);
      return h('th', { scope: 'col', role: 'columnheader', class: options?.number ? 'number' : null }, button);
    });
    this.body = h('tbody', { role: 'rowgroup' });
    this.more = h('p');
    host.replaceChildren(h(level, {}, title),
      h('div', { class: 'controls' }, h('label', { for: `${id}find` }, 'Search '), find,
        ...(same ? [h('span', { class: 'quiet' }, 'the same: ', h('code', {}, same))] : [])),
      h('div', { class: 'wide' }, h('table', { class: 'cards', role: 'table' }, this.caption, h('thead', { role: 'rowgroup' },
        h('tr', { role: 'row' }, ...this.heads, ...(act ? [h('th', { scope: 'col', role: 'columnheader' }, 'Act')] : []))), this.body)),
      this.more);
    if (!this.inParts()) this.draw();
  }

  // Whether it is a long table of a large pod, which is asked for in parts; then they are.
  inParts() {
    if (!inParts(this.name)) return false;
    this.parts ??= new Parts(this.name, () => this.draw());
    this.parts.search(this.find.trim());
    return true;
  }

  keep() {
    if (this.id) return; // a second table of a view has no address
    const query = new URLSearchParams();
    if (this.find) query.set('find', this.find);
    if (this.order) query.set('order', this.order);
    if (this.down) query.set('down', 'true');
    history.replaceState(null, '', this.path + (query.size ? `?${query}` : ''));
  }

  update(changed) {
    // Many changes at once are drawn once.
    if (this.topics.some((name) => changed.has(name)) && !this.drawing) {
      this.parts?.share();
      this.drawing = setTimeout(() => whenReleased(() => {
        this.drawing = 0;
        if (!this.parts && this.inParts()) return; // the stream has said only now how large the pod is
        if (this.parts && changed.has('totals')) this.parts.again();
        else this.draw();
      }), this.parts ? 1000 : 100);
    }
  }

  close() {
    clearTimeout(this.drawing);
    this.parts?.close();
  }

  // What a row shows, in small letters.
  text(key, item) {
    const cells = this.columns.map(([, show]) => show(key, item));
    return cells.map((cell) => (cell instanceof Node ? cell.textContent : String(cell ?? ''))).join(' ').toLowerCase();
  }

  draw() {
    const find = this.find.trim().toLowerCase();
    const value = (column, key, item) => {
      const [, show, options] = this.columns[column];
      const found = options?.sort ? options.sort(key, item) : show(key, item);
      return found instanceof Node ? found.textContent : found;
    };
    const rows = [...topic(this.name)].filter(([key, item]) => this.parts || !find || this.text(key, item).includes(find));
    rows.sort(([a, x], [b, y]) => {
      const [left, right] = [value(this.order, a, x), value(this.order, b, y)];
      const less = typeof left === 'number' && typeof right === 'number'
        ? left - right : String(left).localeCompare(String(right), undefined, { numeric: true });
      return (this.down ? -less : less) || a.localeCompare(b, undefined, { numeric: true });
    });
    this.heads.forEach((head, index) => {
      if (index === this.order) head.setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    const all = total(this.name);
    const part = this.parts?.next && rows.length !== all ? `the first ${rows.length}${find ? ' found' : ''}, by name, of ${all}` : '';
    this.caption.textContent = part || rows.length === all ? part || `${all} in all` : `${rows.length} of ${all}`;
    const had = document.activeElement?.dataset?.focus;
    this.body.replaceChildren(...rows.slice(0, this.most).map(([key, item]) => h('tr', { 'data-row': key, role: 'row' },
      ...this.columns.map(([title, show, options]) =>
        h('td', { class: options?.number ? 'number' : null, role: 'cell', 'data-label': title }, show(key, item))),
      ...(this.act ? [h('td', { class: 'act', role: 'cell' }, ...this.act(key, item))] : []))));
    if (!rows.length) {
      this.body.append(h('tr', { role: 'row' }, h('td', { role: 'cell', colspan: this.columns.length + (this.act ? 1 : 0), class: 'quiet' },
        all ? 'Nothing fits the search.' : this.empty)));
    }
    if (had) this.body.querySelector(`[data-focus="${CSS.escape(had)}"]`)?.focus();
    this.more.replaceChildren(...(rows.length > this.most
      ? [h('button', { onclick: () => { this.most += 1000; this.draw(); } }, `show more of ${rows.length}`)]
      : this.parts?.next ? [h('button', { onclick: () => { this.most = Infinity; this.parts.more(); } }, 'show more')] : []));
  }
}
