/* What this sbatch, srun or salloc was told. See command_option.c. */
#ifndef PODWRIGHT_COMMAND_OPTION_H
#define PODWRIGHT_COMMAND_OPTION_H

/* The value of an option, by its long name; NULL where there is none, and in slurmstepd. */
char *command_option(const char *name);

#endif
