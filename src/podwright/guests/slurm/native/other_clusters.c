/* -M sends a job to another cluster's slurmctld. Where that has no Podwright, it drops what SPANK
 * hands over without a word, and the job runs there without devices. So the command that submits
 * asks each of the named clusters first, whether it counts the licence that every job with devices
 * takes.
 *
 * What -M said, the command itself knows, wherever it was said: the line, #SBATCH, SLURM_CLUSTERS. */
#include "other_clusters.h"

#include "command_option.h"

#include <slurm/slurm.h>
#include <slurm/slurmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every job with devices takes one: MARK in podwright/guests/slurm/service/_pods_and_licences.py. */
static const char *const mark = "podwright_job";

/* 1: the cluster to which Slurm's calls go now counts devices. 0: it does not. -1: no answer. */
static int counts_devices(void)
{
	license_info_msg_t *found = NULL;
	int counts = 0;

	if (slurm_load_licenses(0, &found, SHOW_ALL) != SLURM_SUCCESS || !found)
		return -1;
	for (uint32_t k = 0; k < found->num_lic && !counts; k++)
		counts = found->lic_array[k].name && strcmp(found->lic_array[k].name, mark) == 0;
	slurm_free_license_info_msg(found);
	return counts;
}

bool clusters_have_devices(char *why, size_t size)
{
	char *names = command_option("clusters");
	slurmdb_cluster_rec_t *before = working_cluster_rec, *one;
	void *clusters, *at;
	int counts = -1;

	if (!names || !*names)
		return true;
	snprintf(why, size, "cluster %s is not known here, or does not answer", names);
	clusters = slurmdb_get_info_cluster(names);
	if (!clusters)
		return false;
	at = slurm_list_iterator_create(clusters);
	while ((one = slurm_list_next(at))) {
		working_cluster_rec = one;
		counts = counts_devices();
		if (counts == 1)
			continue;
		snprintf(why, size, counts ? "cluster %s does not say whether it has Podwright"
			 : "cluster %s has no Podwright: the job would run there without devices",
			 one->name);
		break;
	}
	working_cluster_rec = before;
	slurm_list_iterator_destroy(at);
	slurm_list_destroy(clusters);
	return counts == 1;
}
