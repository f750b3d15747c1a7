/* Preloaded into a twin's slurmd: it stands for a node that usually has other CPUs than this machine.
 * Where a process is to run is written to a file of its number, and read back when it is asked for.
 * A process without a file may run on every CPU. Nothing is bound. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *record(pid_t pid, const char *mode)
{
	const char *folder = getenv("PODWRIGHT_TWIN_AFFINITY");
	char path[4096];

	if (!folder)
		return NULL;
	snprintf(path, sizeof(path), "%s/%d", folder, (int) (pid ? pid : getpid()));
	return fopen(path, mode);
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
	FILE *file = record(pid, "w");

	if (!file)
		return -1;
	fwrite(mask, 1, size, file);
	return fclose(file);
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)
{
	FILE *file = record(pid, "r");

	memset(mask, file ? 0 : 0xff, size);
	if (file) {
		if (!fread(mask, 1, size, file))
			memset(mask, 0xff, size);
		fclose(file);
	}
	return 0;
}
