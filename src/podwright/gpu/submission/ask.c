/* One question of job_submit.lua's to the lint service: the job's script out, the findings back.
 * slurmctld waits meanwhile, so that nothing here waits longer than the caller's milliseconds, from
 * connecting to the last byte. From Lua: package.loadlib(file, "podwright_ask"), then
 * answer = ask(socket, question, milliseconds), or nil and a reason.
 *
 * Lua's four functions are declared here, as every Lua from 5.1 to 5.4 has them (5.1's
 * lua_pushlstring returns nothing, which nobody looks at): it needs no headers to be built, and one
 * file serves whatever Lua this Slurm was linked with. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct lua_State lua_State;
extern const char *lua_tolstring(lua_State *L, int index, size_t *length);
extern const char *lua_pushlstring(lua_State *L, const char *text, size_t length);
extern void lua_pushnil(lua_State *L);

enum { ANSWER_MAX = 8192 };

static long long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* Waits until the socket is ready; false at the deadline. */
static bool ready(int fd, short events, long long deadline)
{
	struct pollfd p = {.fd = fd, .events = events};

	for (;;) {
		long long left = deadline - now_us();
		struct timespec t = {.tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000};
		int n;

		if (left <= 0)
			return false;
		n = ppoll(&p, 1, &t, NULL);
		if (n > 0)
			return true;
		if (n < 0 && errno != EINTR)
			return false;
	}
}

/* A Unix socket takes a connection at once, or says EAGAIN where too many wait already. */
static int open_door(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof to.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(to.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		int why = errno;

		close(fd);
		errno = why;
		return -1;
	}
	return fd;
}

static bool put(int fd, const char *text, size_t length, long long deadline)
{
	while (length) {
		ssize_t n = send(fd, text, length, MSG_NOSIGNAL);

		if (n > 0) {
			text += n;
			length -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (!ready(fd, POLLOUT, deadline)) {
			return false;
		}
	}
	return shutdown(fd, SHUT_WR) == 0;
}

/* The answer up to its end; -1 where it does not end in time, or is none of ours. */
static ssize_t get(int fd, char *into, size_t room, long long deadline)
{
	size_t have = 0;

	for (;;) {
		ssize_t n;

		if (!ready(fd, POLLIN, deadline))
			return -1;
		n = recv(fd, into + have, room - have, 0);
		if (n == 0)
			return (ssize_t)have;
		if (n > 0)
			have += (size_t)n;
		else if (errno != EAGAIN && errno != EINTR)
			return -1;
		if (have == room)
			return -1;
	}
}

static int without(lua_State *L, const char *reason)
{
	lua_pushnil(L);
	lua_pushlstring(L, reason, strlen(reason));
	return 2;
}

int podwright_ask(lua_State *L)
{
	size_t length = 0, digits = 0;
	const char *path = lua_tolstring(L, 1, NULL);
	const char *question = lua_tolstring(L, 2, &length);
	const char *wait = lua_tolstring(L, 3, &digits);
	char answer[ANSWER_MAX];
	long long ms = 0, deadline;
	ssize_t n = -1;
	int fd;

	if (!path || !question || !wait)
		return without(L, "it was asked wrongly");
	for (size_t at = 0; at < digits && wait[at] >= '0' && wait[at] <= '9' && ms < 1000; at++)
		ms = ms * 10 + (wait[at] - '0');
	deadline = now_us() + ms * 1000;
	fd = open_door(path);
	if (fd < 0)
		return without(L, errno == EAGAIN ? "it is busy" : strerror(errno));
	if (put(fd, question, length, deadline))
		n = get(fd, answer, sizeof answer, deadline);
	close(fd);
	if (n <= 0)
		return without(L, now_us() >= deadline ? "no answer in time" : "it gave no answer");
	lua_pushlstring(L, answer, (size_t)n);
	return 1;
}
