/* What people read while a job's prolog waits for an answer: a line on the stderr of its srun or
 * salloc, and words in its AdminComment. See late_notice.c. */
#ifndef PODWRIGHT_LATE_NOTICE_H
#define PODWRIGHT_LATE_NOTICE_H

#include <stdbool.h>

/* How a program is started and waited for; its exit code. */
int run_program(const char *path, char *const arguments[]);

/* Starts the notice of this script's job in a process of its own, once. scontrol: the command's path,
 * which outlives the notice. text: what the job waits for. */
void late_notice_begin(const char *scontrol, const char *text);

/* Was a notice begun? Returns when its process has ended, after WAIT_MS at the latest: nothing writes
 * to the job's AdminComment behind this. */
bool late_notice_end(void);

/* Takes the notice out of the AdminComment, if it still stands there. instead: what the service says of
 * a job that it refused; empty: what stood before the notice. */
void late_notice_withdraw(const char *instead);

#endif
