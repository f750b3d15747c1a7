// Which view is shown, by its address; the head's links, and whether the server is heard.
import { link } from './dom.js';
import { listen, status } from './live.js';

// views: name -> [title, (host, address, key) => view]; first: what / shows; others: names of views
// that are not in the head. Returns how to go to an address, and to show the present one anew.
export function start(views, first, others = []) {
  const main = document.getElementById('main');
  let view = null;

  function show() {
    const [, name = '', key = ''] = location.pathname.split('/');
    view?.close?.();
    const host = document.createElement('div');
    main.replaceChildren(host);
    const chosen = name in views ? name : first;
    view = views[chosen][1](host, new URLSearchParams(location.search), decodeURIComponent(key));
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

  document.getElementById('views').append(...Object.entries(views)
    .filter(([name]) => !others.includes(name)).map(([name, [text]]) => link(`/${name}`, text)));
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
  return { go, show, draw: () => view?.draw?.() };
}
