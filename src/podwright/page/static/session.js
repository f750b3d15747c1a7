// The session's secret. It is in localStorage, which belongs to this origin with its port, and goes
// to the server in a header; the cookie alone, which goes to every port of this host, is no session.
const NAME = 'podwright.session';

export const secret = () => {
  try {
    return localStorage.getItem(NAME) ?? '';
  } catch { // a browser that stores nothing
    return memory;
  }
};
let memory = '';

export function keep(value) {
  memory = value;
  try {
    if (value) localStorage.setItem(NAME, value);
    else localStorage.removeItem(NAME);
  } catch { /* it lives as long as this tab */ }
}

// Another tab of this origin has logged in or out.
export const onchange = (callback) => addEventListener('storage', ({ key }) => {
  if (key === NAME || key === null) callback();
});

export const headers = (value = secret()) => (value ? { 'x-podwright-session': value } : {});

// The answer as JSON. Throws an Error with the server's words.
export async function ask(path, { method = 'GET', value, signal } = {}) {
  const body = value === undefined ? undefined : JSON.stringify(value);
  const answer = await fetch(path, { method, body, signal,
    headers: { 'content-type': 'application/json', ...headers() } });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.message ?? found.problem ?? answer.statusText);
  return found;
}
