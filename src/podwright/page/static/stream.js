// The server's stream of events, read by fetch: an EventSource could not send the session's header.
const PAUSE = 1000; // milliseconds before the next attempt
const SILENCE = 30000; // the server writes every 5 seconds; longer silence is a dead connection

// Reads until close() is called, and connects anew whenever the connection ends. heard(kind, data):
// an event of the server's; `lost` with what is wrong when there is no connection.
export function open(secret, heard) {
  const ending = new AbortController();
  let attempt = null;
  const pause = () => new Promise((resolve) => {
    const timer = setTimeout(resolve, PAUSE);
    ending.signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); });
  });

  async function read() {
    attempt = new AbortController();
    let timer = setTimeout(() => attempt.abort(), SILENCE);
    try {
      const answer = await fetch('/live', { signal: attempt.signal, cache: 'no-store',
        headers: secret ? { 'x-podwright-session': secret } : {} });
      if (answer.status === 401) return 'Log in to see this server.';
      if (!answer.ok) return 'The server does not show the pod. Trying again …';
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(() => attempt.abort(), SILENCE);
        const events = (rest + value).split('\n\n');
        rest = events.pop();
        for (const event of events) {
          const fields = new Map(event.split('\n').map((line) => {
            const at = line.indexOf(': ');
            return [line.slice(0, at), line.slice(at + 2)];
          }));
          if (fields.has('event') && !ending.signal.aborted) heard(fields.get('event'), fields.get('data'));
        }
      }
    } catch { /* it ends as any connection does */ } finally {
      clearTimeout(timer);
    }
    return 'The server does not answer. Trying again …';
  }

  (async () => {
    while (!ending.signal.aborted) {
      const problem = await read();
      if (!ending.signal.aborted) heard('lost', problem);
      await pause();
    }
  })();
  return { close() { ending.abort(); attempt?.abort(); } };
}
