/* One HTTP request to the first server that decides. See hook_http.c. */
#ifndef PODWRIGHT_HOOK_HTTP_H
#define PODWRIGHT_HOOK_HTTP_H

#include <stdbool.h>
#include <stddef.h>

enum {
	ANSWER_MAX = 65536,
	ADDRESS_MAX = 256,
	SERVERS_MAX = 8,
	BODY_MAX = 8192,
	TRUSTED_MAX = 8,
	NO_CREDENTIAL = -2
};

struct answer {
	int status;		/* HTTP status, 0 when no server answered */
	size_t length;		/* of the body */
	char body[ANSWER_MAX];	/* ends with a zero byte */
};

/* Milliseconds of a clock that nobody sets. */
long long now_ms(void);

/* Where MUNGE's daemon listens, if not at its usual place; NULL is the usual place. */
extern const char *munge_socket;

/* As whom the service signs what it says over TCP, beside root: a uid. False where there is no room
 * or it is none. */
bool trust(const char *uid);

/* A file whose first line is the key that stands in for MUNGE; NULL: MUNGE it is. */
extern const char *hook_key;

/* What proves a request by the key, to be freed: time, nonce, and the MAC of these, the path and the
 * body. NULL without the key or OpenSSL. See hook_key.c. */
char *key_credential(const char *path, const char *body);

/* Is this the MAC of an answer? before: what it begins with, the request's credential included. */
bool key_vouches(const char *shown, const char *before, const struct answer *said);

/* Why nothing could prove a request, in words. */
const char *no_credential(void);

/* Why the last address did not decide, for a log; empty: nothing was asked yet. */
extern char http_problem[512];

/* Called once while an answer is waited for, when the clock (now_ms) shows `late_at` or more. NULL:
 * nobody is told that it takes long. */
extern void (*http_late)(void);
extern long long late_at;

/* POSTs `body` to `path` at one address: "unix:/path" or "tcp:host:port" (a numeric address or a
 * name). Ends by `deadline` (now_ms) whatever the server does. 0 and the answer, or -1, or
 * NO_CREDENTIAL where neither MUNGE nor the key could vouch for us. */
int http_post(const char *address, const char *path, const char *body, long long deadline,
	      struct answer *out);

/* Asks each of `count` addresses in turn, again and again, until one decides: an answer below 500.
 * What is 5xx, or nobody, is not decided yet. 0 and the answer; or -1 or NO_CREDENTIAL, as above,
 * when `seconds` are over. */
int http_ask(char servers[][ADDRESS_MAX], int count, const char *path, const char *body,
	     long seconds, struct answer *out);

/* Appends ,"key":"value" to a body of BODY_MAX bytes that begins with "{", with what JSON forbids
 * escaped. False where it does not fit: nothing is cut. The caller adds the "}". */
bool json_add(char *body, const char *key, const char *value);

#endif
