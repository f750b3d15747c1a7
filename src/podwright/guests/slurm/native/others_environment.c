/* A job's devices are no other job's. What it submits inherits its environment (Slurm's --export=ALL),
 * so do the steps of all parts of a heterogeneous job, and a step that joins another job: what stands
 * there of devices goes, if it is another's.
 *
 * In native mode the partition's name says whose it is: slurm_<jobid>. Elsewhere WHOSE does. What a user
 * set himself carries neither, and stays. */
#include "others_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char whose[] = "PODWRIGHT_SLURM_JOB", partition[] = "IPUOF_VIPU_API_PARTITION_ID";
static const char *const given[] = {
	partition, "IPUOF_VIPU_API_GCD_ID", "PODWRIGHT_LEASE", "PODWRIGHT_PARTITIONS",
	"PODWRIGHT_ALLOCATION", whose,
};

enum { GIVEN = sizeof given / sizeof *given };

/* Of which job do these two variables say that it is? 0: of none. */
static unsigned long job_of(const char *noted, const char *named)
{
	if (noted && *noted)
		return strtoul(noted, NULL, 10);
	return named && strncmp(named, "slurm_", 6) == 0 ? strtoul(named + 6, NULL, 10) : 0;
}

void forget_others(spank_t spank, uint32_t job)
{
	char noted[32] = "", named[64] = "";
	unsigned long owner;

	spank_getenv(spank, whose, noted, sizeof noted);
	spank_getenv(spank, partition, named, sizeof named);
	owner = job_of(noted, named);
	for (int k = 0; owner && owner != job && k < GIVEN; k++)
		spank_unsetenv(spank, given[k]);
}

void note_whose(spank_t spank, uint32_t job)
{
	char text[32];

	snprintf(text, sizeof text, "%u", job);
	spank_setenv(spank, whose, text, 1);
}

void forget_around(void)
{
	unsigned long owner = job_of(getenv(whose), getenv(partition));

	for (int k = 0; owner && k < GIVEN; k++)
		unsetenv(given[k]);
}
