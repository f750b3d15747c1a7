/* Slurm's side of what a user types and finds: --ipus and --num-replicas for srun, sbatch, salloc
 * and #SBATCH lines, and in each task of a job with devices the partition's environment.
 *
 * Nothing here asks a server. A job's partition is called slurm_<jobid> and a task's GCD is its
 * rank, so the environment follows from what slurmstepd knows; the plugstack line gives the rest:
 *
 *   optional /usr/lib/podwright/spank_podwright.so host=pod-controller port=8090
 *
 * (socket=PATH as well: the server's Unix socket, on nodes that have it)
 *
 * Compiled on the site, against its own Slurm's spank.h. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(podwright, 1);

enum { COUNT_MAX = 65536 };

static char ipus[16], replicas[16];
static const char *host = "localhost", *port = "8090", *socket_path = "";

static int read_count(const char *option, const char *text, char *into, size_t size)
{
	char *end = NULL;
	long value;

	errno = 0;
	value = text ? strtol(text, &end, 10) : 0;
	if (!text || end == text || *end || errno || value < 1 || value > COUNT_MAX) {
		slurm_error("--%s=%s: a whole number from 1 to %d is needed", option,
			    text ? text : "", COUNT_MAX);
		return ESPANK_BAD_ARG;
	}
	snprintf(into, size, "%ld", value);
	return ESPANK_SUCCESS;
}

static int on_ipus(int value, const char *text, int remote)
{
	(void)value;
	(void)remote;
	return read_count("ipus", text, ipus, sizeof ipus);
}

static int on_replicas(int value, const char *text, int remote)
{
	(void)value;
	(void)remote;
	return read_count("num-replicas", text, replicas, sizeof replicas);
}

static struct spank_option options[] = {
	{"ipus", "N", "devices for the job: a power of two, or whole link domains", 1, 0, on_ipus},
	{"num-replicas", "N", "model replicas that share the devices", 1, 0, on_replicas},
	SPANK_OPTIONS_TABLE_END,
};

/* Only what is registered here is seen by sbatch and salloc too: a static table reaches srun alone. */
int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	for (int k = 0; k < argc; k++) {
		if (strncmp(argv[k], "host=", 5) == 0) {
			host = argv[k] + 5;
		} else if (strncmp(argv[k], "port=", 5) == 0) {
			port = argv[k] + 5;
		} else if (strncmp(argv[k], "socket=", 7) == 0) {
			socket_path = argv[k] + 7;
		} else {
			slurm_error("podwright: plugstack argument not understood: %s", argv[k]);
			return ESPANK_BAD_ARG;
		}
	}
	for (struct spank_option *option = options; option->name; option++)
		if (spank_option_register(spank, option) != ESPANK_SUCCESS)
			return ESPANK_ERROR;
	return ESPANK_SUCCESS;
}

/* What job_submit and the hooks see: SPANK_IPUS, SPANK_NUM_REPLICAS. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	spank_context_t where = spank_context();

	(void)argc;
	(void)argv;
	if (where != S_CTX_LOCAL && where != S_CTX_ALLOCATOR)
		return ESPANK_SUCCESS;
	if (*ipus && spank_job_control_setenv(spank, "IPUS", ipus, 1) != ESPANK_SUCCESS)
		return ESPANK_ERROR;
	if (*replicas && spank_job_control_setenv(spank, "NUM_REPLICAS", replicas, 1) != ESPANK_SUCCESS)
		return ESPANK_ERROR;
	return ESPANK_SUCCESS;
}

/* In slurmstepd, before the task's exec. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	char text[64];
	uint32_t job = 0, step = 0, rank = 0;

	(void)argc;
	(void)argv;
	if (!spank_remote(spank))
		return ESPANK_SUCCESS;
	/* A step of a batch job or of salloc was not given the option itself. */
	if (!*ipus && spank_getenv(spank, "SLURM_SPANK_IPUS", ipus, sizeof ipus) != ESPANK_SUCCESS)
		return ESPANK_SUCCESS;
	if (!*ipus || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return ESPANK_SUCCESS;
	snprintf(text, sizeof text, "slurm_%u", job);
	spank_setenv(spank, "IPUOF_VIPU_API_PARTITION_ID", text, 1);
	spank_setenv(spank, "IPUOF_VIPU_API_HOST", host, 1);
	spank_setenv(spank, "IPUOF_VIPU_API_PORT", port, 1);
	/* Where the server's own socket is at hand, Podwright's commands are known by it. */
	if (*socket_path && access(socket_path, F_OK) == 0)
		spank_setenv(spank, "PODWRIGHT_SOCKET", socket_path, 0);
	/* The batch script is no task of a program: what it starts chooses its own GCDs. */
	if (spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	    step < SLURM_MAX_NORMAL_STEP_ID &&
	    spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) == ESPANK_SUCCESS) {
		snprintf(text, sizeof text, "%u", rank);
		spank_setenv(spank, "IPUOF_VIPU_API_GCD_ID", text, 1);
	}
	return ESPANK_SUCCESS;
}
