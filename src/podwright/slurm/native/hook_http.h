/* One HTTP request to the first server that answers. See hook_http.c. */
#ifndef PODWRIGHT_HOOK_HTTP_H
#define PODWRIGHT_HOOK_HTTP_H

#include <stddef.h>

enum { ANSWER_MAX = 65536, ADDRESS_MAX = 256, SERVERS_MAX = 8, NO_CREDENTIAL = -2 };

struct answer {
	int status;		/* HTTP status, 0 when no server answered */
	size_t length;		/* of the body */
	char body[ANSWER_MAX];	/* ends with a zero byte */
};

/* Milliseconds of a clock that nobody sets. */
long long now_ms(void);

/* Where MUNGE's daemon listens, if not at its usual place; NULL is the usual place. */
extern const char *munge_socket;

/* POSTs `body` to `path` at one address: "unix:/path" or "tcp:host:port" (a numeric address or a
 * name). Ends by `deadline` (now_ms) whatever the server does. 0 and the answer, or -1, or
 * NO_CREDENTIAL where MUNGE could not vouch for us. */
int http_post(const char *address, const char *path, const char *body, long long deadline,
	      struct answer *out);

#endif
