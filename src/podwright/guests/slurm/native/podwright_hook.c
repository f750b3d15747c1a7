/* What Slurm runs as PrologSlurmctld and EpilogSlurmctld: tells Podwright's server that a job begins
 * or has ended, and does not return before the server has answered or the time is up.
 *
 * Compiled because it runs twice for each job: no interpreter, no shell. The name under which it is
 * called says what to do, and the folder of that name holds its settings (hook.conf):
 *
 *   server unix:/run/podwright/server.sock     up to 8 lines, tried in turn
 *   server tcp:pod-controller:8091             with a MUNGE credential
 *   prolog-seconds 30                          how long a job may wait with its nodes held
 *   epilog-seconds 600                         how long an ended job's licences stay counted
 *   before-prolog-slurmctld /usr/local/...     the site's own script, run first (also before-epilog-)
 *   trust 64030                                as whom the service may answer over TCP, beside root
 *   munge-socket /run/munge/munge.socket.2     if not at its usual place
 *   key /etc/podwright/slurm/hook.key          proves requests over TCP, where there is no MUNGE
 *   licence ipu                                jobs whose licences lack this name are none of ours
 *   log /var/log/slurm/slurmctld.log         what is wrong is said there, beside syslog
 *   scontrol /usr/bin/scontrol                 says to a job and its srun that its prolog waits
 *   late-seconds 8                             for so long; an epilog that does says it in the log
 *   drain /usr/bin/scontrol                    the hosts of a job whose end failed are taken out
 *   slurm-conf /etc/slurm/slurm.conf           for these: Slurm names no file to its scripts
 *
 * Exit codes: 0 done (or not ours), 1 refused, 2 usage or settings, 75 no server within the time.
 * For Slurm anything but 0 in the prolog means: batch jobs go back to the queue, others end. */
#define _GNU_SOURCE
#include "hook_http.h"
#include "late_notice.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

/* COUNTED_S: how long a job whose site's prolog failed waits to be counted. AGAIN_S: how long one that
 * was answered late may wait for the same answer again. */
enum { LINE_MAX_ = 1024, EXIT_NO_SERVER = 75, COUNTED_S = 5, AGAIN_S = 15 };

struct settings {
	char servers[SERVERS_MAX][ADDRESS_MAX];
	int count;
	long prolog_seconds, epilog_seconds, late_seconds;
	char before[2][LINE_MAX_]; /* prolog, epilog */
	char licence[64];
	char munge[ADDRESS_MAX];
	char key[LINE_MAX_];
	char scontrol[ADDRESS_MAX], drain[ADDRESS_MAX];
	char slurm_conf[LINE_MAX_];
};

/* What was complained of last: the reason of a node that is taken out. */
static char last[1024];

/* slurmctld's own log: what a script of its says on stderr, Slurm keeps to itself. */
static char log_path[LINE_MAX_];

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line in Slurm's form, in one write. A log that is not there is not made. */
static void say(const char *path, const char *text)
{
	char line[sizeof last + 64], when[32];
	struct timespec now;
	struct tm at;
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	int length;

	if (fd < 0)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &at);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &at);
	length = snprintf(line, sizeof line, "[%s.%03ld] error: %.*s\n", when,
			  now.tv_nsec / 1000000, (int)strcspn(text, "\n"), text);
	if (write(fd, line, (size_t)length) < 0)
		syslog(LOG_DAEMON | LOG_ERR, "podwright: %s: %s", path, strerror(errno));
	close(fd);
}

static void complain(const char *format, ...)
{
	va_list rest;

	va_start(rest, format);
	vsyslog(LOG_DAEMON | LOG_ERR, format, rest);
	va_end(rest);
	va_start(rest, format);
	vsnprintf(last, sizeof last, format, rest);
	va_end(rest);
	fprintf(stderr, "%s\n", last);
	if (*log_path)
		say(log_path, last);
}

/* Copies a word that must fit; false says so. */
static bool copy(char *to, size_t size, const char *from)
{
	size_t length = strlen(from);

	if (length == 0 || length >= size)
		return false;
	memcpy(to, from, length + 1);
	return true;
}

static bool read_seconds(const char *text, long *to)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < 1 || value > 86400)
		return false;
	*to = value;
	return true;
}

static bool set(struct settings *s, const char *key, const char *value)
{
	if (strcmp(key, "server") == 0)
		return s->count < SERVERS_MAX && copy(s->servers[s->count++], ADDRESS_MAX, value);
	if (strcmp(key, "prolog-seconds") == 0)
		return read_seconds(value, &s->prolog_seconds);
	if (strcmp(key, "epilog-seconds") == 0)
		return read_seconds(value, &s->epilog_seconds);
	if (strcmp(key, "before-prolog-slurmctld") == 0)
		return copy(s->before[0], LINE_MAX_, value);
	if (strcmp(key, "before-epilog-slurmctld") == 0)
		return copy(s->before[1], LINE_MAX_, value);
	if (strcmp(key, "munge-socket") == 0)
		return copy(s->munge, sizeof s->munge, value);
	if (strcmp(key, "trust") == 0)
		return trust(value);
	if (strcmp(key, "key") == 0)
		return copy(s->key, sizeof s->key, value);
	if (strcmp(key, "scontrol") == 0)
		return copy(s->scontrol, sizeof s->scontrol, value);
	if (strcmp(key, "late-seconds") == 0)
		return read_seconds(value, &s->late_seconds);
	if (strcmp(key, "drain") == 0)
		return copy(s->drain, sizeof s->drain, value);
	if (strcmp(key, "slurm-conf") == 0)
		return copy(s->slurm_conf, sizeof s->slurm_conf, value);
	if (strcmp(key, "log") == 0)
		return copy(log_path, sizeof log_path, value);
	if (strcmp(key, "licence") == 0)
		return copy(s->licence, sizeof s->licence, value);
	return false;
}

static bool read_settings(const char *path, struct settings *s)
{
	char line[LINE_MAX_ + 64];
	FILE *file = fopen(path, "re");
	int number = 0;
	bool good = true;

	*s = (struct settings){.prolog_seconds = 30, .epilog_seconds = 600, .late_seconds = 8,
				.licence = "ipu"};
	if (!file) {
		complain("%s: %s", path, strerror(errno));
		return false;
	}
	while (good && fgets(line, sizeof line, file)) {
		char *value = line + strcspn(line, " \t\n");

		number++;
		if (*line == '#' || *line == '\n')
			continue;
		if (*value)
			*value++ = '\0';
		value += strspn(value, " \t");
		value[strcspn(value, "\n")] = '\0';
		if (!set(s, line, value)) {
			complain("%s:%d: not understood: %s %s", path, number, line, value);
			good = false;
		}
	}
	fclose(file);
	if (good && s->count == 0) {
		complain("%s: names no server", path);
		good = false;
	}
	return good;
}

/* True if the job's licences ("ipu:4,matlab:1"; with ";" between them since Slurm 25.05, and once
 * Slurm has written the list itself) name ours. */
static bool holds(const char *licences, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = licences; at; at = strpbrk(at, ",;|")) {
		at += strspn(at, ",;|");
		if (strncmp(at, name, length) == 0 && strchr(":=@(,;|", at[length]))
			return true;
	}
	return false;
}

/* Whoever asked for devices is known by the option that he gave, whatever became of the licences:
 * Slurm 24.11 lets only the leader of a heterogeneous job have any, a user may take his off, and a
 * slurm.conf without them drops them from every job. The service decides what that means. */
static bool ours(const char *licences, const char *name)
{
	const char *ipus = getenv("SPANK_IPUS");

	return (licences && holds(licences, name)) || (ipus && strcmp(ipus, "0") != 0);
}

/* The job in the server's words, from what Slurm puts into the environment of its scripts. problem:
 * what went wrong already, or nothing. */
static bool describe(char *body, const char *problem)
{
	static const char *const fields[][2] = {
		{"job", "SLURM_JOB_ID"},
		{"uid", "SLURM_JOB_UID"},
		{"user", "SLURM_JOB_USER"},
		{"account", "SLURM_JOB_ACCOUNT"},
		{"name", "SLURM_JOB_NAME"},
		{"licences", "SLURM_JOB_LICENSES"},
		{"hosts", "SLURM_JOB_NODELIST"},
		{"cluster", "SLURM_CLUSTER_NAME"},
		{"restart", "SLURM_JOB_RESTART_COUNT"},
		{"het_job", "SLURM_HET_JOB_ID"},
		{"het_offset", "SLURM_HET_JOB_OFFSET"},
		{"array_job", "SLURM_ARRAY_JOB_ID"},
		{"array_task", "SLURM_ARRAY_TASK_ID"},
		{"replicas", "SPANK_NUM_REPLICAS"},
		{"movable", "SPANK_IPUS_MOVABLE"},
		{"ipus", "SPANK_IPUS"},
	};

	strcpy(body, "{");
	for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
		const char *value = getenv(fields[k][1]);

		if (value && !json_add(body, fields[k][0], value))
			return false;
	}
	if (*problem && !json_add(body, "problem", problem))
		return false;
	strcat(body, "}");
	return true;
}

/* The site's own script; its exit code is the job's. */
static int run_before(char *path)
{
	int status = run_program(path, (char *[]){path, NULL});

	if (status)
		snprintf(last, sizeof last, "podwright: job %s: the site's %.300s ended with %d",
			 getenv("SLURM_JOB_ID"), path, status);
	return status;
}

/* Where the site says so, a job's hosts come out of Slurm when its end failed: their machines are
 * not free. What went wrong is their reason. */
static void take_out(char *scontrol)
{
	const char *hosts = getenv("SLURM_JOB_NODELIST");
	char nodes[BODY_MAX], reason[sizeof last + 16];

	if (!hosts || snprintf(nodes, sizeof nodes, "nodename=%s", hosts) >= (int)sizeof nodes)
		return;
	last[strcspn(last, "\n")] = '\0';
	snprintf(reason, sizeof reason, "reason=%s", last);
	run_program(scontrol, (char *[]){scontrol, "update", nodes, "state=drain", reason, NULL});
}

static const struct settings *waits_by; /* of a script that waits */

/* An answer takes long: the job's own people are told. */
static void tell_people(void)
{
	char text[sizeof http_problem + 256], when[16];
	time_t now = time(NULL);
	struct tm at;

	localtime_r(&now, &at);
	strftime(when, sizeof when, "%H:%M:%S", &at);
	snprintf(text, sizeof text,
		 "its devices are not ready after %ld s, at %s: %.300s. It waits %ld s more; then a "
		 "batch job goes back to the queue, and an srun or salloc ends",
		 waits_by->late_seconds, when, http_problem,
		 waits_by->prolog_seconds - waits_by->late_seconds);
	late_notice_begin(waits_by->scontrol, text);
}

/* An epilog's answer takes long. Its job is COMPLETING and nobody waits at it, so slurmctld's log has
 * the line. What failed before stays the reason of a node that is taken out. */
static void tell_log(void)
{
	char failed_before[sizeof last];

	memcpy(failed_before, last, sizeof last);
	complain("podwright: job %s has ended and waits in its epilog: its devices are not given back "
		 "after %ld s: %.300s. It waits %ld s more, and its licences stay counted until then",
		 getenv("SLURM_JOB_ID"), waits_by->late_seconds, http_problem,
		 waits_by->epilog_seconds - waits_by->late_seconds);
	memcpy(last, failed_before, sizeof last);
}

/* Has `tell` called once, if no answer has come after late-seconds. */
static void watch(const struct settings *s, long seconds, void (*tell)(void))
{
	if (s->late_seconds >= seconds)
		return;
	waits_by = s;
	late_at = now_ms() + s->late_seconds * 1000;
	http_late = tell;
}

static struct answer answer; /* the last one */

/* Asks the servers; the exit code that their answer means. */
static int ask(struct settings *s, const char *path, const char *body, long seconds)
{
	int failed = http_ask(s->servers, s->count, path, body, seconds, &answer);

	if (failed) {
		complain("podwright: job %s: no server answered within %ld s%s: %.400s",
			 getenv("SLURM_JOB_ID"), seconds,
			 failed == NO_CREDENTIAL ? no_credential() : "",
			 http_problem);
		return EXIT_NO_SERVER;
	}
	if (answer.status == 200) {
		fwrite(answer.body, 1, answer.length, stdout);
		return 0;
	}
	complain("podwright: job %s refused (%d): %.400s", getenv("SLURM_JOB_ID"), answer.status,
		 answer.body);
	return 1;
}

/* A job begins. Who waits for long is told so, and told otherwise when the answer has come. */
static int begin(struct settings *s, const char *body)
{
	int failed;

	if (*s->scontrol)
		watch(s, s->prolog_seconds, tell_people);
	failed = ask(s, "/slurm.v1/JobBegins", body, s->prolog_seconds);
	http_late = NULL;
	if (!late_notice_end() || failed == EXIT_NO_SERVER)
		return failed;
	/* The notice may stand where the service had just written what the job was given: asked
	 * again it writes that anew. A refusal it would count twice; its words are the answer. */
	if (!failed)
		failed = ask(s, "/slurm.v1/JobBegins", body, AGAIN_S);
	if (failed != EXIT_NO_SERVER)
		late_notice_withdraw(failed ? answer.body : "");
	return failed;
}

int main(int argc, char **argv)
{
	char here[LINE_MAX_], conf[LINE_MAX_ + 16], body[BODY_MAX];
	const char *licences = getenv("SLURM_JOB_LICENSES"), *name;
	struct settings s;
	bool epilog;
	int failed;

	if (argc != 1 || !copy(here, sizeof here, argv[0])) {
		complain("podwright-hook: Slurm runs this; it takes no arguments");
		return 2;
	}
	name = basename(argv[0]);
	epilog = strcmp(name, "epilog-slurmctld") == 0;
	if (!epilog && strcmp(name, "prolog-slurmctld") != 0) {
		complain("podwright-hook: called as %s; known: prolog-slurmctld, epilog-slurmctld", name);
		return 2;
	}
	snprintf(conf, sizeof conf, "%s/hook.conf", dirname(here));
	if (!read_settings(conf, &s))
		return 2;
	if (*s.munge)
		munge_socket = s.munge;
	if (*s.key)
		hook_key = s.key;
	failed = s.before[epilog][0] ? run_before(s.before[epilog]) : 0;
	/* A job that ended is told to the server whatever the site's own script thought of it. */
	if (!getenv("SLURM_JOB_ID") || !ours(licences, s.licence))
		return failed;
	if (!describe(body, failed && !epilog ? last : "")) {
		complain("podwright: job %s: its description is too long", getenv("SLURM_JOB_ID"));
		return failed ? failed : 1;
	}
	if (*s.slurm_conf)
		setenv("SLURM_CONF", s.slurm_conf, 1);
	if (epilog) {
		watch(&s, s.epilog_seconds, tell_log);
		failed = ask(&s, "/slurm.v1/JobEnded", body, s.epilog_seconds) || failed;
		if (failed && *s.drain)
			take_out(s.drain);
		return failed;
	}
	if (failed) { /* Slurm would start it again for ever: the service counts, and holds it. */
		ask(&s, "/slurm.v1/PrologFailed", body, COUNTED_S);
		return failed;
	}
	return begin(&s, body);
}
