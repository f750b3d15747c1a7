/* A command's options lie in its `opt`, whichever way they were said (the line, #SBATCH, a variable);
 * slurm_option_get() reads them by name (src/common/slurm_opt.h, the same in 22.05 to 26.05). Both are
 * weak here: slurmstepd has no `opt`. */
#include "command_option.h"

#include <stddef.h>

extern char opt[] __attribute__((weak));
extern char *slurm_option_get(void *options, const char *name) __attribute__((weak));

char *command_option(const char *name)
{
	return opt && slurm_option_get ? slurm_option_get(opt, name) : NULL;
}
