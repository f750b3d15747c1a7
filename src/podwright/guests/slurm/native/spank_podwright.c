/* Slurm's side of what a user types and finds: --ipus, --num-replicas and --ipus-movable for srun,
 * sbatch, salloc and #SBATCH lines, and in each task of a job with devices the partition's environment.
 *
 * A job's partition is called slurm_<jobid> and a task's GCD is its rank, so the environment follows
 * from what slurmstepd knows; the plugstack line gives the rest:
 *
 *   optional /usr/lib/podwright/spank_podwright.so host=pod-controller port=8090
 *
 * (socket=PATH as well: the server's Unix socket, on nodes that have it)
 *
 * prove=ADDRESS, once or several times: where the service is, as in hook.conf. Each step of a job
 * with devices asks it, before anything of the user's runs, whether the job holds them; without
 * that its tasks end with 75, and a batch job goes back to the queue: held where the service said
 * no. munge=PATH: MUNGE's socket, if not at its usual place; key=PATH: the key that stands
 * in for MUNGE; trust=UID: as whom the service may answer over TCP, beside root. prove-all=yes: every step asks, since
 * nothing of a job shows that it has devices (host mapping: its hosts do).
 *
 * Where the name does not follow from the job's id (ask=yes), it stands in the job's AdminComment:
 * the service wrote it there before the job began, no user can change it, and slurmctld says it to
 * whoever is a step of the job. options=no: the site has no --ipus.
 *
 * Compiled on the site, against its own Slurm's spank.h. */
#define _GNU_SOURCE
/* slurm_load_job() and slurm_requeue() take a slurm_step_id_t since 26.05, which still has these. */
#define SLURM_BACKWARD_COMPAT
#include "command_option.h"
#include "other_clusters.h"
#include "others_environment.h"
#include "step_proof.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(podwright, 1);

enum { COUNT_MAX = 65536, EXIT_UNPROVEN = 75 };

/* partitions and leases: as many words as the job was given; gcds: of each of its partitions. */
static char ipus[16], replicas[16], movable[2], partitions[1024], leases[1024], allocation[128], gcds[16];
static const char *host = "localhost", *port = "8090", *socket_path = "";
static int ask, no_options, prove_all, is_batch;
/* In srun: the job around it, and what that was handed over. */
static uint32_t own_job;
static char own[16];
/* What this part of a heterogeneous job asked for itself, as job_submit noted it. */
static char part[16];
/* Did it note that the job asked for devices? Where SPANK hands over nothing, licences would be all that
 * says so, and Slurm loses those: at a requeue up to 25.11.6, and with slurm.conf's. */
static int noted;

/* In place of a number: the step joins a job that was there before, whose request it was not told. */
#define JOINS "joins"

/* Where the service is, what this step could say of its job, and why its tasks may not begin. */
static struct doors doors;
static struct claim claim;
static char unproven[512];

static int read_count(const char *option, const char *text, long least, char *into, size_t size)
{
	char *end = NULL;
	long value;

	errno = 0;
	value = text ? strtol(text, &end, 10) : 0;
	if (!text || end == text || *end || errno || value < least || value > COUNT_MAX) {
		slurm_error("--%s=%s: a whole number from %ld to %d is needed", option,
			    text ? text : "", least, COUNT_MAX);
		return ESPANK_BAD_ARG;
	}
	snprintf(into, size, "%ld", value);
	return ESPANK_SUCCESS;
}

static int on_ipus(int value, const char *text, int remote)
{
	(void)value;
	/* It knows the option, and hands over nothing that a plugin says: the job would have none. */
	if (!remote && strcmp(program_invocation_short_name, "scrontab") == 0) {
		slurm_error("--ipus is not for scrontab, where Slurm does not hand it over: "
			    "let the entry submit a job, sbatch --ipus=%s SCRIPT", text ? text : "N");
		return ESPANK_BAD_ARG;
	}
	return read_count("ipus", text, 0, ipus, sizeof ipus);
}

static int on_replicas(int value, const char *text, int remote)
{
	(void)value;
	(void)remote;
	return read_count("num-replicas", text, 1, replicas, sizeof replicas);
}

static int on_movable(int value, const char *text, int remote)
{
	(void)value;
	(void)text;
	(void)remote;
	strcpy(movable, "1");
	return ESPANK_SUCCESS;
}

static struct spank_option options[] = {
	{"ipus", "N", "devices for the job: a power of two; 0: none", 1, 0, on_ipus},
	{"num-replicas", "N", "model replicas that share the devices", 1, 0, on_replicas},
	{"ipus-movable", NULL, "launches in the job that can be moved may be asked to", 0, 0, on_movable},
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
		} else if (strcmp(argv[k], "ask=yes") == 0) {
			ask = 1;
		} else if (strcmp(argv[k], "options=no") == 0) {
			no_options = 1;
		} else if (strcmp(argv[k], "prove-all=yes") == 0) {
			prove_all = 1;
		} else if (strncmp(argv[k], "munge=", 6) == 0) {
			munge_socket = argv[k] + 6;
		} else if (strncmp(argv[k], "key=", 4) == 0) {
			hook_key = argv[k] + 4;
		} else if (strncmp(argv[k], "trust=", 6) == 0 && trust(argv[k] + 6)) {
			continue;
		} else if (strncmp(argv[k], "prove=", 6) == 0 && doors_add(&doors, argv[k] + 6)) {
			continue;
		} else {
			slurm_error("podwright: plugstack argument not understood: %s", argv[k]);
			return ESPANK_BAD_ARG;
		}
	}
	for (struct spank_option *option = options; !no_options && option->name; option++)
		if (spank_option_register(spank, option) != ESPANK_SUCCESS)
			return ESPANK_ERROR;
	return ESPANK_SUCCESS;
}

/* The value of key=... in a comment, up to a blank. */
static void read_word(const char *text, const char *key, char *into, size_t size)
{
	const char *at = strstr(text, key);
	size_t length;

	if (!at)
		return;
	at += strlen(key);
	length = strcspn(at, " ;");
	if (length < size) {
		memcpy(into, at, length);
		into[length] = '\0';
	}
}

/* The n-th of some words with commas between them, counted from 0 and round again. */
static void nth(const char *words, unsigned int n, char *into, size_t size)
{
	unsigned int count = 1;
	size_t length;

	for (const char *at = words; *at; at++)
		count += *at == ',';
	for (n %= count; n; n--)
		words += strcspn(words, ",") + 1;
	length = strcspn(words, ",");
	if (length >= size)
		length = size - 1;
	memcpy(into, words, length);
	into[length] = '\0';
}

/* Where the server is. */
static void set_server(spank_t spank)
{
	spank_setenv(spank, "IPUOF_VIPU_API_HOST", host, 1);
	spank_setenv(spank, "IPUOF_VIPU_API_PORT", port, 1);
	/* Where the server's own socket is at hand, Podwright's commands are known by it. */
	if (*socket_path && access(socket_path, F_OK) == 0)
		spank_setenv(spank, "PODWRIGHT_SOCKET", socket_path, 0);
}

/* What slurmctld says of the job: into the claim, and what the service wrote for it. True where the
 * job runs: one that was cancelled meanwhile must not come back by being requeued. In slurmstepd's
 * first moments, since from when it drops its privileges Slurm 24.11 lets nobody in it talk to
 * slurmctld. */
static int read_job(uint32_t job)
{
	job_info_msg_t *found = NULL;
	const char *said = NULL;
	int runs = 0;

	/* This cluster's slurmctld knows the job; its federation need not be asked for first. */
	if (slurm_load_job(&found, job, SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS) {
		slurm_error("podwright: slurmctld does not say what job %u holds", job);
		return 0;
	}
	for (uint32_t k = 0; k < found->record_count; k++) {
		slurm_job_info_t *one = &found->job_array[k];

		if (one->job_id != job)
			continue;
		runs = (one->job_state & JOB_STATE_BASE) == JOB_RUNNING &&
		       !(one->job_state & (JOB_COMPLETING | JOB_REQUEUE));
		is_batch = one->batch_flag != 0;
		snprintf(claim.restart, sizeof claim.restart, "%u", one->restart_cnt);
		snprintf(claim.submitted, sizeof claim.submitted, "%lld",
			 (long long)one->submit_time);
		snprintf(claim.licences, sizeof claim.licences, "%s",
			 one->licenses ? one->licenses : "");
		if (one->het_job_id) {
			snprintf(claim.leader, sizeof claim.leader, "%u", one->het_job_id);
			snprintf(claim.offset, sizeof claim.offset, "%u", one->het_job_offset);
		}
		if (one->admin_comment)
			said = strstr(one->admin_comment, "podwright: ");
		noted = one->admin_comment && !one->het_job_id &&
			(strncmp(one->admin_comment, "vipu=", 5) == 0 ||
			 strncmp(one->admin_comment, "ipus=", 5) == 0);
		/* What job_submit wrote for a part of a heterogeneous job, before anything else. */
		if (one->admin_comment && strncmp(one->admin_comment, "ipus=", 5) == 0)
			read_word(one->admin_comment, "ipus=", part, sizeof part);
	}
	if (said && ask) {
		read_word(said, "partition=", partitions, sizeof partitions);
		read_word(said, "lease=", leases, sizeof leases);
		read_word(said, "gcds=", gcds, sizeof gcds);
		read_word(said, "allocation=", allocation, sizeof allocation);
	}
	slurm_free_job_info_msg(found);
	return runs;
}

/* What slurmctld counts for a job, as far as its licences say. Each block licence counts all devices:
 * ipu_x4:8. */
static const char *counted(void)
{
	static char text[16];
	const char *count = strstr(claim.licences, "_x");

	snprintf(text, sizeof text, "%d", strstr(claim.licences, "podwright_job") != NULL);
	if (count && (count += 2 + strspn(count + 2, "0123456789"), *count) && atoi(count + 1) > 0)
		snprintf(text, sizeof text, "%d", atoi(count + 1));
	return text;
}

/* What the step was handed over. In a heterogeneous job that is what was said for one of its parts,
 * its first or its last, and one that joins its job was handed nothing: slurmctld says what it is.
 * False where it does not. */
static int find_ipus(spank_t spank, uint32_t job, uint32_t step)
{
	char size[16];
	int joins;

	if (!*ipus && spank_getenv(spank, "SLURM_SPANK_IPUS", ipus, sizeof ipus) != ESPANK_SUCCESS)
		ipus[0] = '\0';
	joins = strcmp(ipus, JOINS) == 0;
	if (joins)
		ipus[0] = '\0';
	if (!ask && !joins && spank_getenv(spank, "SLURM_HET_SIZE", size, sizeof size) != ESPANK_SUCCESS)
		return 1;
	if (!ask)
		read_job(job);
	/* The script was handed its own part's. Of others nobody but the service can say what they
	 * are to have, where no note is left of that. */
	if (*claim.leader && *part)
		snprintf(ipus, sizeof ipus, "%s", part);
	else if (*claim.leader && step != SLURM_BATCH_SCRIPT && !no_options)
		strcpy(claim.unread, "1");
	else if (joins)
		snprintf(ipus, sizeof ipus, "%s", counted());
	/* Who took a running job's licences away took none of its devices: the service has the record. */
	if (joins && !*claim.leader && strcmp(ipus, "0") == 0)
		strcpy(claim.unread, "1");
	return *claim.restart != '\0';
}

/* Was the job given devices, by all that this step can see? The licences of a heterogeneous job's first
 * part are those of all its parts. */
static int has_devices(void)
{
	return prove_all || noted || *claim.unread || (*ipus && strcmp(ipus, "0") != 0) || *partitions || *allocation ||
	       (!*claim.leader && strstr(claim.licences, "podwright_"));
}

/* The job goes back to the queue; held: until somebody releases it. Only a batch job can, and one
 * that is over already stays over. */
static void requeue(uint32_t job, int held)
{
	int runs = read_job(job);
	uint32_t whole = *claim.leader ? (uint32_t)strtoul(claim.leader, NULL, 10) : job;

	if (runs && slurm_requeue(whole, held ? JOB_REQUEUE_HOLD : 0) != SLURM_SUCCESS)
		slurm_info("podwright: job %u is not requeued", whole);
}

/* Once for each step on a node: what the job was handed, and that it really holds its devices. */
static void begin_step(spank_t spank)
{
	uint32_t job = 0, step = 0;
	uid_t uid = 0;
	enum proof proof;
	char said[448];
	int untold;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == SLURM_EXTERN_CONT)
		return;
	/* Nothing else says what it has; for a batch step nobody waits. */
	for (int tries = step == SLURM_BATCH_SCRIPT ? 3 : 1; ask && tries && !*claim.restart; tries--)
		read_job(job);
	if (!find_ipus(spank, job, step)) {
		snprintf(unproven, sizeof unproven,
			 "podwright: slurmctld does not say whether job %u has devices", job);
		return;
	}
	if (doors.count == 0 && *claim.unread && *claim.leader)
		snprintf(unproven, sizeof unproven,
			 "podwright: nobody is left to say what job %u is to have", job);
	if (doors.count == 0 || !has_devices())
		return;
	/* Only a batch job starts more than once: what slurmctld says of this start is its own. */
	if (!ask && step == SLURM_BATCH_SCRIPT)
		read_job(job);
	snprintf(claim.job, sizeof claim.job, "%u", job);
	snprintf(claim.step, sizeof claim.step, "%s",
		 step == SLURM_BATCH_SCRIPT ? "batch" : "step");
	snprintf(claim.ipus, sizeof claim.ipus, "%s", ipus);
	if (spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS)
		snprintf(claim.uid, sizeof claim.uid, "%u", (unsigned)uid);
	if (spank_getenv(spank, "SLURMD_NODENAME", claim.host, sizeof claim.host) != ESPANK_SUCCESS)
		gethostname(claim.host, sizeof claim.host - 1);
	proof = step_proof(&doors, &claim, said, sizeof said);
	if (proof == PROVEN && *claim.unread) {
		ipus[0] = '\0';
		read_word(said, "ipus=", ipus, sizeof ipus);
		if (!*ipus) {
			snprintf(said, sizeof said, "the service does not say what it holds");
			proof = REFUSED;
		}
	}
	/* The service's record, whatever became of the comment. Of hosts without machines a job has
	 * nothing. */
	if (proof == PROVEN && ask)
		read_word(said, "allocation=", allocation, sizeof allocation);
	untold = ask && !*partitions && !*allocation;
	if (proof == PROVEN && untold && !prove_all) {
		snprintf(said, sizeof said, "what it was given is not in its AdminComment any more");
		proof = REFUSED;
	}
	if (proof == PROVEN)
		return;
	/* What a batch script starts, its own step was proven for: a service that is away for a while
	 * costs the job nothing. */
	untold = untold && strstr(claim.licences, "podwright_");
	/* By all that Slurm says this job has none. */
	if (proof == UNKNOWN && *claim.unread && !*claim.leader && !noted) {
		slurm_info("podwright: job %u is taken for one without devices: %s", job, said);
		return;
	}
	if (proof == UNKNOWN && step != SLURM_BATCH_SCRIPT && !*claim.unread && !untold && read_job(job) &&
	    is_batch) {
		slurm_info("podwright: job %u goes on: %s", job, said);
		return;
	}
	snprintf(unproven, sizeof unproven, "podwright: job %u does not begin here: %s", job, said);
	slurm_error("%s", unproven);
	if (proof == REFUSED || step == SLURM_BATCH_SCRIPT)
		requeue(job, proof == REFUSED);
}

/* What was said for a job, or for one part of it, goes over with that alone. Slurm itself would hand
 * the option on, by a variable that counts more than #SBATCH lines: to the next part, and to whatever
 * the job submits. A step has what its job was handed. */
static int hand_over(spank_t spank, const char *name, const char *option, const char *value)
{
	char inherited[64];

	spank_job_control_unsetenv(spank, option);
	if (*value)
		return spank_job_control_setenv(spank, name, value, 1) != ESPANK_SUCCESS;
	if (spank_context() == S_CTX_LOCAL && getenv("SLURM_JOB_ID"))
		return 0;
	spank_job_control_unsetenv(spank, name);
	snprintf(inherited, sizeof inherited, "SLURM_SPANK_%s", name);
	unsetenv(inherited);
	unsetenv(option);
	return 0;
}

/* Was this srun told of which job it is to be a step (`--jobid`, which may be shortened)? */
static int attaches(void)
{
	char words[8192];
	size_t length = 0;
	FILE *file = fopen("/proc/self/cmdline", "re");

	if (file) {
		length = fread(words, 1, sizeof words - 1, file);
		fclose(file);
	}
	words[length] = '\0';
	for (size_t at = 0; at < length; at += strlen(words + at) + 1)
		if (strncmp(words + at, "--jobi", 6) == 0)
			return 1;
	return 0;
}

static void read_own(void)
{
	const char *job = getenv("SLURM_JOBID"), *handed = getenv("SLURM_SPANK_IPUS");

	snprintf(own, sizeof own, "%s", handed && strcmp(handed, JOINS) ? handed : "0");
	own_job = job ? (uint32_t)strtoul(job, NULL, 10) : 0;
}

/* Does this srun join a job, without that job's environment around it? SLURM_JOB_ID alone joins as
 * well; a job's own environment has the older name beside it. */
static int joins_job(void)
{
	const char *job = getenv("SLURM_JOB_ID"), *around = getenv("SLURM_JOBID");

	return attaches() ||
	       (job && (!getenv("SLURM_SPANK_IPUS") || !around || strcmp(job, around) != 0));
}

/* Does this srun, which makes a step, ask for other devices than its job has? Asked before anything
 * was made of the step. Of parts, and where slurmctld does not answer, the step's own proof decides. */
static int asks_for_others(char *why, size_t size)
{
	const char *named = command_option("jobid"), *around = getenv("SLURM_JOB_ID"), *has;
	uint32_t job = named ? (uint32_t)strtoul(named, NULL, 10) : 0;

	if (!job || job >= MAX_JOB_ID)
		job = around ? (uint32_t)strtoul(around, NULL, 10) : 0;
	if (!job || getenv("SLURM_HET_SIZE"))
		return 0;
	read_job(job);
	if (!*claim.restart || *claim.leader)
		return 0;
	has = strcmp(counted(), "0") == 0 && own_job == job ? own : counted();
	if (strcmp(has, "0") == 0)
		snprintf(why, size, "job %u was submitted without devices, and a step has what its job has: "
			 "submit it with --ipus=%s", job, ipus);
	else
		snprintf(why, size, "job %u has %s devices, and each of its steps has all of them: "
			 "leave --ipus out", job, has);
	return strcmp(has, ipus) != 0;
}

/* What job_submit and the hooks see: SPANK_IPUS, SPANK_NUM_REPLICAS, SPANK_IPUS_MOVABLE. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	spank_context_t where = spank_context();
	int joins = !ask && where == S_CTX_LOCAL && !*ipus && joins_job();
	char why[256];

	(void)argc;
	(void)argv;
	if (where == S_CTX_REMOTE)
		begin_step(spank);
	if (where != S_CTX_LOCAL && where != S_CTX_ALLOCATOR)
		return ESPANK_SUCCESS;
	if (*ipus && strcmp(ipus, "0") != 0 && !clusters_have_devices(why, sizeof why)) {
		slurm_error("podwright: --ipus=%s with -M: %s", ipus, why);
		/* An error of an optional plugin's stops nothing; nothing was submitted yet. */
		exit(EXIT_FAILURE);
	}
	if (where == S_CTX_LOCAL) {
		read_own();
		if (*ipus && strcmp(ipus, "0") != 0 && asks_for_others(why, sizeof why)) {
			slurm_error("podwright: --ipus=%s: %s", ipus, why);
			exit(EXIT_FAILURE);
		}
	} else {
		forget_around();
	}
	if (hand_over(spank, "IPUS", "_SLURM_SPANK_OPTION_podwright_ipus", ipus) ||
	    hand_over(spank, "NUM_REPLICAS", "_SLURM_SPANK_OPTION_podwright_num_replicas", replicas) ||
	    hand_over(spank, "IPUS_MOVABLE", "_SLURM_SPANK_OPTION_podwright_ipus_movable", movable))
		return ESPANK_ERROR;
	if (joins)
		setenv("SLURM_SPANK_IPUS", JOINS, 1);
	/* The next part of a heterogeneous job comes by here as well. */
	ipus[0] = replicas[0] = movable[0] = '\0';
	return ESPANK_SUCCESS;
}

/* In srun, which knows by now of which job its step is; for the first part of a step alone, so what
 * is of one job only. slurmctld says what the job has; where it does not, the step asks. */
int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
{
	uint32_t job = 0;
	const char *handed = getenv("SLURM_SPANK_IPUS");

	(void)argc;
	(void)argv;
	if (ask || !handed || strcmp(handed, JOINS) != 0 ||
	    spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return ESPANK_SUCCESS;
	read_job(job);
	if (!*claim.restart || *claim.leader)
		return ESPANK_SUCCESS;
	/* Slurm may have lost its own job's licences. Of another job without any the step asks. */
	if (strcmp(counted(), "0") != 0)
		setenv("SLURM_SPANK_IPUS", counted(), 1);
	else if (own_job == job)
		setenv("SLURM_SPANK_IPUS", own, 1);
	return ESPANK_SUCCESS;
}

/* What was handed to the job: to its tasks in turn, where it is more than one. */
static int set_handed(spank_t spank, uint32_t job, int is_task, uint32_t rank)
{
	char text[128];
	unsigned int count = 1, each = (unsigned int)atoi(gcds);

	if (*allocation) {
		spank_setenv(spank, "PODWRIGHT_ALLOCATION", allocation, 1);
		set_server(spank);
	}
	if (*allocation || *partitions)
		note_whose(spank, job);
	if (!*partitions)
		return ESPANK_SUCCESS;
	for (const char *at = partitions; *at; at++)
		count += *at == ',';
	set_server(spank);
	nth(partitions, rank, text, sizeof text);
	spank_setenv(spank, "IPUOF_VIPU_API_PARTITION_ID", text, 1);
	nth(leases, rank, text, sizeof text);
	spank_setenv(spank, "PODWRIGHT_LEASE", text, 1);
	if (count > 1)
		spank_setenv(spank, "PODWRIGHT_PARTITIONS", partitions, 1);
	if (is_task) {
		snprintf(text, sizeof text, "%u", rank / count % (each ? each : 1));
		spank_setenv(spank, "IPUOF_VIPU_API_GCD_ID", text, 1);
	}
	return ESPANK_SUCCESS;
}

/* In slurmstepd, as root, in each task's own process: one that was not proven ends here. */
int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!spank_remote(spank) || !*unproven)
		return ESPANK_SUCCESS;
	dprintf(STDERR_FILENO, "%s\n", unproven);
	_exit(EXIT_UNPROVEN);
}

/* In slurmstepd, before the task's exec. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	char text[64];
	uint32_t job = 0, step = 0, rank = 0;
	int is_task;

	(void)argc;
	(void)argv;
	if (!spank_remote(spank) || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return ESPANK_SUCCESS;
	/* The batch script is no task of a program: what it starts chooses its own GCDs. */
	is_task = spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
		  step < SLURM_MAX_NORMAL_STEP_ID &&
		  spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) == ESPANK_SUCCESS;
	forget_others(spank, job);
	if (ask)
		return set_handed(spank, job, is_task, is_task ? rank : 0);
	/* A step of a batch job or of salloc was not given the option itself. */
	if (!*ipus && spank_getenv(spank, "SLURM_SPANK_IPUS", ipus, sizeof ipus) != ESPANK_SUCCESS)
		ipus[0] = '\0';
	if (strcmp(ipus, "0") == 0)
		forget_others(spank, 0);
	if (!*ipus || strcmp(ipus, "0") == 0)
		return ESPANK_SUCCESS;
	snprintf(text, sizeof text, "slurm_%u", job);
	spank_setenv(spank, "IPUOF_VIPU_API_PARTITION_ID", text, 1);
	set_server(spank);
	if (is_task) {
		snprintf(text, sizeof text, "%u", rank);
		spank_setenv(spank, "IPUOF_VIPU_API_GCD_ID", text, 1);
	}
	return ESPANK_SUCCESS;
}
