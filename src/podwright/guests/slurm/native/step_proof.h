/* Does the service hold an active lease for the start of a job that a step belongs to? See
 * step_proof.c. */
#ifndef PODWRIGHT_STEP_PROOF_H
#define PODWRIGHT_STEP_PROOF_H

#include "hook_http.h"

/* PROVEN: the step may begin. REFUSED: the service says no. UNKNOWN: nobody answered. */
enum proof { PROVEN, REFUSED, UNKNOWN };

/* What a step knows of its job, as text; empty: it does not know. restart: how often Slurm has
 * started the job anew; only slurmctld's own word, never what the job's environment says. unread: the
 * service says what it has, since the note of its part of a heterogeneous job is lost, or the licences
 * of the job that it joined are gone. */
struct claim {
	char job[16], leader[16], offset[16], uid[16], restart[16], submitted[24], ipus[16], step[16];
	char unread[8], cluster[64], host[256], licences[2048];
};

/* Where the service may be: "unix:/path" or "tcp:host:port". */
struct doors {
	char at[SERVERS_MAX][ADDRESS_MAX];
	int count;
};

/* One address more; false where it does not fit. */
bool doors_add(struct doors *doors, const char *address);

/* Asks the service; `said` holds its own words, or what went wrong. Waits for STEP_SECONDS at most:
 * srun gives up on a node that does not answer for longer (MessageTimeout, 10 s). For a batch step
 * nobody waits: BATCH_SECONDS, in which another service takes over from one that is gone. */
enum proof step_proof(struct doors *doors, const struct claim *claim, char *said, size_t size);

enum { STEP_SECONDS = 8, BATCH_SECONDS = 30 };

#endif
