/* The smallest HTTP client that a scheduler's hook can trust: one POST, HTTP/1.0 so that the answer
 * ends where the connection does, every wait bounded by one deadline, every buffer of fixed size.
 * Over TCP the request carries a MUNGE credential whose payload is the body itself, so that neither
 * can be used without the other; and the answer one of the service, over the status, the request's
 * credential and what it says: whoever else listens at its address, or stands between, decides
 * nothing. libmunge is looked for only then. */
#define _GNU_SOURCE
#include "hook_http.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <sys/types.h>
#include <unistd.h>

/* A host that is gone answers nothing, and another address may be waiting for its turn.
 * ANSWER_MS: how long one of several servers may think, or its share of the time, if that is less.
 * What it began goes on, and is found done. */
enum { REQUEST_MAX = 16384, CONNECT_MS = 2000, ANSWER_MS = 10000, NOT_VOUCHED = -3 };

long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

void (*http_late)(void);
long long late_at;

/* Tells, if it is time, that the answer takes long. Milliseconds until then; or many. */
static long long tell_late(void)
{
	void (*tell)(void) = http_late;
	long long left = tell ? late_at - now_ms() : 60000;

	if (left > 0)
		return left;
	http_late = NULL;
	tell();
	return 60000;
}

/* Waits until the socket is ready; false at the deadline. */
static bool ready(int fd, short events, long long deadline)
{
	struct pollfd p = {.fd = fd, .events = events};

	for (;;) {
		long long until_late = tell_late();
		long long left = deadline - now_ms();
		int n;

		if (left <= 0)
			return false;
		if (left > until_late)
			left = until_late;
		n = poll(&p, 1, left > 60000 ? 60000 : (int)left);
		if (n > 0)
			return true;
		if (n < 0 && errno != EINTR)
			return false;
	}
}

static int connect_by(const struct sockaddr *to, socklen_t length, long long deadline)
{
	int failed = ETIMEDOUT;
	socklen_t size = sizeof failed;
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (connect(fd, to, length) == 0)
		return fd;
	/* A Unix socket with a full backlog says EAGAIN, and then there is nothing to wait for. */
	if (errno != EINPROGRESS)
		failed = errno;
	else if (ready(fd, POLLOUT, deadline) &&
		 getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0)
		return fd;
	close(fd);
	errno = failed;
	return -1;
}

static int connect_unix(const char *path, long long deadline)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof to.sun_path)
		return -1;
	strcpy(to.sun_path, path);
	return connect_by((struct sockaddr *)&to, sizeof to, deadline);
}

static int connect_tcp(const char *address, long long deadline)
{
	char host[ADDRESS_MAX];
	const char *colon = strrchr(address, ':');
	struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found, *at;
	int fd = -1;

	if (!colon || colon == address || (size_t)(colon - address) >= sizeof host)
		return -1;
	memcpy(host, address, (size_t)(colon - address));
	host[colon - address] = '\0';
	if (getaddrinfo(host, colon + 1, &want, &found) != 0)
		return -1;
	for (at = found; at && fd < 0; at = at->ai_next)
		fd = connect_by(at->ai_addr, at->ai_addrlen, deadline);
	freeaddrinfo(found);
	return fd;
}

const char *munge_socket;
char http_problem[512];

const char *no_credential(void)
{
	return hook_key ? " (no signature: is the key readable, and OpenSSL's libcrypto here?)"
			: " (no MUNGE credential for TCP: is munged running?)";
}

static const char *scheme(void)
{
	return hook_key ? "Podwright" : "MUNGE";
}

static uid_t trusted[TRUSTED_MAX];
static int trusted_count;

bool trust(const char *uid)
{
	char *end;
	unsigned long value = strtoul(uid, &end, 10);

	if (trusted_count == TRUSTED_MAX || end == uid || *end || value >= UINT32_MAX)
		return false;
	trusted[trusted_count++] = (uid_t)value;
	return true;
}

static bool is_trusted(uid_t uid)
{
	for (int k = 0; k < trusted_count; k++)
		if (trusted[k] == uid)
			return true;
	return uid == 0;
}

/* The header of libmunge is not needed to build: MUNGE_OPT_SOCKET is 8 (munge 0.5). */
struct munge {
	int (*encode)(char **, void *, const void *, int);
	int (*decode)(const char *, void *, void **, int *, uid_t *, gid_t *);
	void *context;
	void (*destroy)(void *);
};

/* False where MUNGE is absent. */
static bool munge_begin(struct munge *m)
{
	enum { OPT_SOCKET = 8 };
	static void *library;
	void *(*create)(void);
	int (*set)(void *, int, ...);

	if (!library && !(library = dlopen("libmunge.so.2", RTLD_NOW)))
		return false;
	*(void **)&m->encode = dlsym(library, "munge_encode");
	*(void **)&m->decode = dlsym(library, "munge_decode");
	*(void **)&create = dlsym(library, "munge_ctx_create");
	*(void **)&m->destroy = dlsym(library, "munge_ctx_destroy");
	*(void **)&set = dlsym(library, "munge_ctx_set");
	if (!m->encode || !m->decode || !m->destroy || !set || !create || !(m->context = create()))
		return false;
	if (munge_socket && set(m->context, OPT_SOCKET, munge_socket) != 0) {
		m->destroy(m->context);
		return false;
	}
	return true;
}

/* A credential for the body, to be freed. NULL where MUNGE is absent or its daemon does not run. */
static char *credential(const char *body)
{
	struct munge m;
	char *made = NULL;

	if (!munge_begin(&m))
		return NULL;
	if (m.encode(&made, m.context, body, (int)strlen(body)) != 0) {
		free(made);
		made = NULL;
	}
	m.destroy(m.context);
	return made;
}

/* Did the service say this, and to the request of this credential? head: the answer's, ended by a
 * zero byte. Its word is the payload of a credential that counts once. */
static bool vouched(const char *head, const char *proof, const struct answer *said)
{
	char name[64], shown[REQUEST_MAX + ANSWER_MAX], before[REQUEST_MAX];
	int named = snprintf(name, sizeof name, "\r\nAuthentication-Info: %s ", scheme());
	const char *at = strcasestr(head, name);
	size_t length = at ? strcspn(at + named, "\r") : 0;
	int begins = snprintf(before, sizeof before, "%d\n%s\n", said->status, proof), size = 0;
	struct munge m;
	void *payload = NULL;
	uid_t uid = (uid_t)-1;
	gid_t gid;
	bool good;

	if (!length || length >= sizeof shown || begins < 0 || (size_t)begins >= sizeof before)
		return false;
	memcpy(shown, at + named, length);
	shown[length] = '\0';
	if (hook_key)
		return key_vouches(shown, before, said);
	if (!munge_begin(&m))
		return false;
	good = m.decode(shown, m.context, &payload, &size, &uid, &gid) == 0 && payload &&
	       is_trusted(uid) && (size_t)size == (size_t)begins + said->length &&
	       memcmp(payload, before, (size_t)begins) == 0 &&
	       memcmp((char *)payload + begins, said->body, said->length) == 0;
	free(payload);
	m.destroy(m.context);
	return good;
}

static bool send_all(int fd, const char *data, size_t length, long long deadline)
{
	while (length > 0) {
		ssize_t n = send(fd, data, length, MSG_NOSIGNAL);

		if (n > 0) {
			data += n;
			length -= (size_t)n;
		} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (!ready(fd, POLLOUT, deadline))
				return false;
		} else {
			return false;
		}
	}
	return true;
}

/* Reads to the end of the connection. -1 when it does not end in time or does not fit. */
static ssize_t receive_all(int fd, char *buffer, size_t size, long long deadline)
{
	size_t have = 0;

	for (;;) {
		ssize_t n = recv(fd, buffer + have, size - 1 - have, 0);

		if (n > 0) {
			have += (size_t)n;
			if (have == size - 1)
				return -1;
		} else if (n == 0) {
			buffer[have] = '\0';
			return (ssize_t)have;
		} else if (errno != EINTR && (errno != EAGAIN || !ready(fd, POLLIN, deadline))) {
			return -1;
		}
	}
}

/* Takes an answer apart. proof: the request's credential, whose answer must be vouched for. */
static int parse(char *text, size_t length, const char *proof, struct answer *out)
{
	static char head[ANSWER_MAX];
	char *end = strstr(text, "\r\n\r\n");
	int status;

	if (!end || sscanf(text, "HTTP/1.%*1[01] %3d", &status) != 1)
		return -1;
	*end = '\0';
	strcpy(head, text);
	end += 4;
	out->status = status;
	out->length = length - (size_t)(end - text);
	memmove(out->body, end, out->length + 1);
	return !proof || vouched(head, proof, out) ? 0 : NOT_VOUCHED;
}

int http_post(const char *address, const char *path, const char *body, long long deadline,
	      struct answer *out)
{
	bool local = strncmp(address, "unix:", 5) == 0;
	char request[REQUEST_MAX];
	char *proof = NULL;
	long long connected;
	int fd, length, result = -1;

	out->status = 0;
	out->length = 0;
	out->body[0] = '\0';
	if (!local && strncmp(address, "tcp:", 4) != 0)
		return -1;
	if (!local && !(proof = hook_key ? key_credential(path, body) : credential(body)))
		return NO_CREDENTIAL;
	length = snprintf(request, sizeof request,
			  "POST %s HTTP/1.0\r\nHost: podwright\r\nContent-Type: application/json\r\n"
			  "Content-Length: %zu\r\n%s%s%s%s%s\r\n%s",
			  path, strlen(body), proof ? "Authorization: " : "",
			  proof ? scheme() : "", proof ? " " : "", proof ? proof : "",
			  proof ? "\r\n" : "", body);
	if (length < 0 || (size_t)length >= sizeof request) {
		free(proof);
		return -1;
	}
	connected = now_ms() + CONNECT_MS;
	if (connected > deadline)
		connected = deadline;
	fd = local ? connect_unix(address + 5, connected) : connect_tcp(address + 4, connected);
	if (fd < 0) {
		snprintf(http_problem, sizeof http_problem, "%s: %s", address, strerror(errno));
		free(proof);
		return -1;
	}
	snprintf(http_problem, sizeof http_problem, "%s: it did not answer", address);
	if (send_all(fd, request, (size_t)length, deadline)) {
		ssize_t n = receive_all(fd, out->body, sizeof out->body, deadline);

		if (n > 0)
			result = parse(out->body, (size_t)n, proof, out);
	}
	if (result == NOT_VOUCHED) {
		snprintf(http_problem, sizeof http_problem,
			 "%s: what answered there is not Podwright's service by %s, it said %d: "
			 "%.200s", address, scheme(), out->status, out->body);
		out->status = 0;
		out->length = 0;
		out->body[0] = '\0';
		result = -1;
	}
	free(proof);
	close(fd);
	return result;
}

int http_ask(char servers[][ADDRESS_MAX], int count, const char *path, const char *body,
	     long seconds, struct answer *out)
{
	long long deadline = now_ms() + seconds * 1000LL;
	long long each = seconds * 1000LL / (count ? count : 1);
	char before[sizeof http_problem];
	useconds_t pause = 20000;
	int result = -1;

	do {
		for (int k = 0; k < count; k++) {
			long long most = each < ANSWER_MS ? each : ANSWER_MS;
			long long until = count > 1 ? now_ms() + most : deadline;
			int failed;

			memcpy(before, http_problem, sizeof before);
			failed = http_post(servers[k], path, body,
					   until < deadline ? until : deadline, out);

			/* What the end of the time cut short says less than what was heard before. */
			if (failed && before[0] && now_ms() >= deadline)
				memcpy(http_problem, before, sizeof before);
			if (failed == NO_CREDENTIAL)
				result = failed;
			if (!failed && out->status < 500)
				return 0;
			if (!failed)
				snprintf(http_problem, sizeof http_problem, "%s: %.*s", servers[k],
					 (int)strcspn(out->body, "\n"), out->body);
		}
		tell_late();
		usleep(pause);
		if (pause < 1000000)
			pause *= 2;
	} while (now_ms() < deadline);
	return result;
}

bool json_add(char *body, const char *key, const char *value)
{
	size_t at = strlen(body);
	int n = snprintf(body + at, BODY_MAX - at, "%s\"%s\":\"", at > 1 ? "," : "", key);

	if (n < 0)
		return false;
	at += (size_t)n;
	for (; *value; value++) {
		if (at + 8 >= BODY_MAX)
			return false;
		if (*value == '"' || *value == '\\')
			body[at++] = '\\';
		if ((unsigned char)*value < 0x20)
			at += (size_t)snprintf(body + at, 7, "\\u%04x", (unsigned)*value);
		else
			body[at++] = *value;
	}
	if (at + 2 >= BODY_MAX)
		return false;
	memcpy(body + at, "\"", 2);
	return true;
}
