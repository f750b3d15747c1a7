// Other pods of the site: a link to each one's page, and whether its server is healthy.
import { h } from './dom.js';

const WORDS = { ok: 'healthy', standby: 'stands by' };

export function otherPods(source) {
  const pods = [...source('pods')];
  return h('nav', { class: 'other-pods', 'aria-label': 'Other pods', hidden: !pods.length }, 'Other pods: ',
    h('ul', {}, ...pods.map(([name, { url, state }]) => h('li', { 'data-pod': name },
      h('a', { href: url, rel: 'noreferrer' }, name), ' ',
      h('span', { class: state === 'ok' ? 'good' : state === 'not known' ? 'quiet' : 'bad' }, WORDS[state] ?? state)))));
}
