// Which view is shown, by its address; the head's links, and whether the server is heard.
import { h, link, whenReleased } from './dom.js';
import { listen, status } from './live.js';

// views: name -> [title, (host, address, key) => view]; places: names of those in the head, of which
// / shows the first; hidden: names of those that are not even in its menu. Returns how to go to an
// address, and to show the present one anew.
export function start(views, places, hidden = []) {
  const main = document.getElementById('main');
  let view = null;

  function show() {
    const [, name = '', key = ''] = location.pathname.split('/');
    view?.close?.();
    const host = document.createElement('div');
    main.replaceChildren(host);
    const chosen = name in views ? name : places[0];
    view = views[chosen][1](host, new URLSearchParams(location.search), decodeURIComponent(key));
    document.title = `${view.title} · Podwright`;
    for (const item of document.querySelectorAll('#views a')) {
      if (item.pathname === `/${chosen}`) item.setAttribute('aria-current', 'page');
      else item.removeAttribute('aria-current');
    }
    more.open = false;
    more.classList.toggle('current', Boolean(more.querySelector('[aria-current]')));
  }

  function go(path) {
    history.pushState(null, '', path);
    show();
    main.focus({ preventScroll: true });
  }

  const place = (name) => link(`/${name}`, views[name][0]);
  const rest = Object.keys(views).filter((name) => !places.includes(name) && !hidden.includes(name));
  const more = h('details', {}, h('summary', {}, 'More'), h('div', {}, ...rest.map(place)));
  document.getElementById('views').append(...places.map(place), more);
  document.addEventListener('keydown', ({ key }) => { if (key === 'Escape') more.open = false; });
  document.addEventListener('click', (event) => {
    if (!more.contains(event.target)) more.open = false;
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
    if (changed.size) whenReleased(() => { if (view?.topics.some((name) => changed.has(name))) view.update(changed); });
  });
  show();
  return { go, show, draw: () => whenReleased(() => view?.draw?.()) };
}
