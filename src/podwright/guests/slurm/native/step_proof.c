/* Proves that a step's job holds its devices, in slurmstepd before anything of the user's runs.
 *
 * Slurm starts a job whose PrologSlurmctld was ended by a signal, and one whose PrologSlurmctld was
 * missing when slurmctld began (prep_prolog_slurmctld_callback, prep_p_prolog_slurmctld: so from
 * 22.05 to 26.05). So no step takes that hook's word: the service itself is asked. */
#define _GNU_SOURCE
#include "step_proof.h"

#include <stdio.h>
#include <string.h>

bool doors_add(struct doors *doors, const char *address)
{
	if (doors->count == SERVERS_MAX || strlen(address) >= ADDRESS_MAX || !*address)
		return false;
	strcpy(doors->at[doors->count++], address);
	return true;
}

static bool describe(const struct claim *claim, char *body)
{
	const char *const fields[][2] = {
		{"job", claim->job},
		{"uid", claim->uid},
		{"restart", claim->restart},
		{"submitted", claim->submitted},
		{"licences", claim->licences},
		{"ipus", claim->ipus},
		{"cluster", claim->cluster},
		{"hosts", claim->host},
		{"het_job", claim->leader},
		{"het_offset", claim->offset},
		{"step", claim->step},
		{"unread", claim->unread},
	};

	strcpy(body, "{");
	for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
		if (*fields[k][1] && !json_add(body, fields[k][0], fields[k][1]))
			return false;
	strcat(body, "}");
	return true;
}

enum proof step_proof(struct doors *doors, const struct claim *claim, char *said, size_t size)
{
	static struct answer answer;
	char body[BODY_MAX];
	int failed, seconds = strcmp(claim->step, "batch") ? STEP_SECONDS : BATCH_SECONDS;

	if (!describe(claim, body)) {
		snprintf(said, size, "what the job is does not fit into a request");
		return REFUSED;
	}
	failed = http_ask(doors->at, doors->count, "/slurm.v1/StepBegins", body, seconds,
			  &answer);
	if (failed) {
		snprintf(said, size, "podwright slurm serve did not answer within %d s at %s%s",
			 seconds, doors->at[0],
			 failed == NO_CREDENTIAL ? no_credential() : "");
		return UNKNOWN;
	}
	answer.body[strcspn(answer.body, "\n")] = '\0';
	snprintf(said, size, "%.400s", answer.body);
	return answer.status == 200 ? PROVEN : REFUSED;
}
