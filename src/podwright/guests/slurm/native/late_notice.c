/* A job whose prolog waits for the service is CONFIGURING, and Slurm says nothing of that: srun
 * prints nothing and the job shows no reason. So a prolog that has waited for a while writes both.
 *
 * `scontrol notify` prints a line on the stderr of srun and salloc; for a batch job, whose output does
 * not exist yet, it does nothing. The AdminComment keeps "try 1 of 3 failed ..." as its beginning: by
 * these words the service counts how often a job was tried. What job_submit noted before all other
 * words, job_submit.lua itself keeps at every change.
 *
 * The service writes the same field when it gives a job its devices, and steps of jobs without native
 * mode read there what they were given. Therefore whoever began a notice ends it, asks the service once
 * more, which then writes its own words last, and only then withdraws the notice. */
#define _GNU_SOURCE
#include "late_notice.h"
#include "hook_http.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* WAIT_MS: how long a notice may take once it is not needed any more. A slurmctld that does not answer
 * holds scontrol up. */
enum { SHOWN_MAX = 65536, WORDS_MAX = 4096, WAIT_MS = 10000 };

static const char MARK[] = "waits in its prolog: ";
static const char TRIED[] = "try ";

static const char *command;
static pid_t writer;

/* The job as scontrol must be told it: an array's or a heterogeneous job's own number would mean all
 * of it. */
static const char *reference(void)
{
	static char text[64];
	const char *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");
	const char *het = getenv("SLURM_HET_JOB_ID"), *offset = getenv("SLURM_HET_JOB_OFFSET");

	if (array && *array && task && *task)
		snprintf(text, sizeof text, "%s_%s", array, task);
	else if (het && *het && strcmp(het, "0") != 0 && offset && *offset)
		snprintf(text, sizeof text, "%s+%s", het, offset);
	else
		snprintf(text, sizeof text, "%s", getenv("SLURM_JOB_ID"));
	return text;
}

/* One part of a heterogeneous job speaks to srun for all. */
static bool speaks(void)
{
	const char *offset = getenv("SLURM_HET_JOB_OFFSET");

	return !offset || !*offset || strcmp(offset, "0") == 0;
}

int run_program(const char *path, char *const arguments[])
{
	int status;
	pid_t child = fork();

	if (child < 0)
		return 1;
	if (child == 0) {
		execv(path, arguments);
		_exit(127);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What scontrol shows of the job, in a static buffer; empty where it does not. */
static char *shown(void)
{
	static char text[SHOWN_MAX];
	size_t have = 0;
	ssize_t n;
	int ends[2];
	pid_t child;

	text[0] = '\0';
	if (pipe(ends) < 0)
		return text;
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(command, command, "show", "job", reference(), (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	while (child > 0 && have < sizeof text - 1 &&
	       (n = read(ends[0], text + have, sizeof text - 1 - have)) != 0) {
		if (n > 0)
			have += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	close(ends[0]);
	text[have] = '\0';
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return text;
}

/* The AdminComment in what scontrol shows, which has a line of its own; empty: it has none. */
static const char *comment_in(char *text)
{
	static const char field[] = " AdminComment=";
	char *at = strstr(text, field);

	if (!at)
		return "";
	at += sizeof field - 1;
	at[strcspn(at, "\n")] = '\0';
	return at;
}

/* "try N of M failed: ..." in a comment, without a notice behind it; empty: nothing failed yet. */
static const char *tries_in(const char *comment, char *out, size_t size)
{
	const char *at = strncmp(comment, TRIED, sizeof TRIED - 1) ? strstr(comment, "; try ") : comment;
	char *end;

	out[0] = '\0';
	if (!at)
		return out;
	snprintf(out, size, "%s", at + (*at == ';' ? 2 : 0));
	if ((end = strstr(out, MARK)))
		*end = '\0';
	for (end = out + strlen(out); end > out && strchr("; ", end[-1]); end--)
		end[-1] = '\0';
	return out;
}

static void write_comment(const char *words)
{
	char update[WORDS_MAX + 16], whose[72];

	snprintf(update, sizeof update, "admincomment=%s", words);
	snprintf(whose, sizeof whose, "jobid=%s", reference());
	run_program(command, (char *[]){(char *)command, "update", whose, update, NULL});
}

static void write_notice(const char *text)
{
	char line[WORDS_MAX], words[WORDS_MAX], tries[WORDS_MAX / 2];
	char *now = shown(), *number = getenv("SLURM_JOB_ID");
	bool is_batch = strstr(now, "BatchFlag=1") != NULL;

	snprintf(line, sizeof line, "podwright: job %s %s%s", number, MARK, text);
	if (speaks() && !is_batch)
		run_program(command, (char *[]){(char *)command, "notify", number, line, NULL});
	tries_in(comment_in(now), tries, sizeof tries);
	snprintf(words, sizeof words, "%.1500s%s%s%.1500s", tries, *tries ? "; " : "", MARK, text);
	write_comment(words);
}

void late_notice_begin(const char *scontrol, const char *text)
{
	if (writer)
		return;
	command = scontrol;
	writer = fork();
	if (writer == 0) {
		/* A group of its own: ended as a whole, with the command that it runs. It ends with
		 * its parent, else it could write over what the next start of the job was given. */
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		write_notice(text);
		_exit(0);
	}
	if (writer > 0)
		setpgid(writer, writer);
	else
		writer = 0;
}

bool late_notice_end(void)
{
	long long deadline = now_ms() + WAIT_MS;
	pid_t done;

	if (!writer)
		return false;
	while ((done = waitpid(writer, NULL, WNOHANG)) == 0 && now_ms() < deadline)
		usleep(20000);
	if (done == 0) {
		kill(-writer, SIGKILL);
		while (waitpid(writer, NULL, 0) < 0 && errno == EINTR)
			;
	}
	writer = 0;
	return true;
}

void late_notice_withdraw(const char *instead)
{
	char tries[WORDS_MAX / 2];
	const char *now = comment_in(shown());

	if (strstr(now, MARK))
		write_comment(*instead ? instead : tries_in(now, tries, sizeof tries));
}
