/* Where -M sends a job with devices, is there Podwright? See other_clusters.c. */
#ifndef PODWRIGHT_OTHER_CLUSTERS_H
#define PODWRIGHT_OTHER_CLUSTERS_H

#include <stdbool.h>
#include <stddef.h>

/* False where this sbatch, srun or salloc was given -M (or its variable) and one of those clusters
 * has no Podwright, or does not say; `why` then holds the reason, for the user. */
bool clusters_have_devices(char *why, size_t size);

#endif
