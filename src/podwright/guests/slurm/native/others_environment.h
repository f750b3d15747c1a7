/* What another job's environment says of its devices. See others_environment.c. */
#ifndef PODWRIGHT_OTHERS_ENVIRONMENT_H
#define PODWRIGHT_OTHERS_ENVIRONMENT_H

#include <slurm/spank.h>
#include <stdint.h>

/* In slurmstepd: out of a task's environment goes what was another job's than this one, or another
 * part's. job 0: whosever it was. */
void forget_others(spank_t spank, uint32_t job);

/* In slurmstepd: what stands in the task's environment is this job's. */
void note_whose(spank_t spank, uint32_t job);

/* In sbatch and salloc, which make a job: the same of their own environment, which it gets. */
void forget_around(void);

#endif
