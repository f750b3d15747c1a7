/* A stand-in of libnvidia-ml.so.1 for Slurm's own gpu/nvml plugin: GPUS GPUs, and the processes that
 * the file USE lists, a line each: GPU, pid, use in per cent, MiB. */
#include <stdio.h>
#include <string.h>

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute;
} process;
typedef struct {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
} sample;
enum { FINE = 0, NOT_SUPPORTED = 3, TOO_SMALL = 7 };
#define NUMBER(gpu) ((int)(long)(gpu)-1)

static unsigned listed(void *gpu, process *processes, sample *samples, unsigned most) {
    FILE *file = fopen(USE, "r");
    unsigned number, pid, use, count = 0;
    unsigned long long mib;
    while (file && fscanf(file, "%u %u %u %llu", &number, &pid, &use, &mib) == 4) {
        if ((int)number != NUMBER(gpu) || use > 100)
            continue;
        if (processes && count < most)
            processes[count] = (process){.pid = pid, .used = mib << 20};
        if (samples && count < most)
            samples[count] = (sample){.pid = pid, .at = 1, .sm = use};
        count++;
    }
    if (file)
        fclose(file);
    return count;
}

int nvmlInit_v2(void) { return FINE; }
int nvmlShutdown(void) { return FINE; }
const char *nvmlErrorString(int code) { return code ? "not in this stand-in" : "fine"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "570"), 0; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { return snprintf(text, size, "12"), 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = GPUS, FINE; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **gpu) {
    *gpu = (void *)(long)(at + 1);
    return at < GPUS ? FINE : 2;
}
int nvmlDeviceGetName(void *gpu, char *text, unsigned size) {
    return snprintf(text, size, "NVIDIA H100 80GB HBM3"), FINE;
}
int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size) {
    return snprintf(text, size, "GPU-00000000-0000-0000-0000-%012d", NUMBER(gpu)), FINE;
}
int nvmlDeviceGetMinorNumber(void *gpu, unsigned *minor) { return *minor = NUMBER(gpu), FINE; }
int nvmlDeviceGetPciInfo_v3(void *gpu, char *info) {
    memset(info, 0, 68);
    snprintf(info + 36, 32, "00000000:%02X:00.0", NUMBER(gpu) + 1);
    return FINE;
}
int nvmlDeviceGetCpuAffinity(void *gpu, unsigned words, unsigned long *set) {
    memset(set, 0, words * sizeof *set);
    set[0] = 3;
    return FINE;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, process *found) {
    unsigned most = *count;
    *count = listed(gpu, found, NULL, most);
    return *count > most ? TOO_SMALL : FINE;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *gpu, unsigned *count, process *found) {
    return *count = 0, FINE;
}
int nvmlDeviceGetProcessUtilization(void *gpu, sample *found, unsigned *count,
                                    unsigned long long since) {
    unsigned most = found ? *count : 0;
    *count = listed(gpu, NULL, found, most);
    return *count > most ? TOO_SMALL : FINE;
}
#define MISSING(name) int name(void) { return NOT_SUPPORTED; }
MISSING(nvmlDeviceGetApplicationsClock)
MISSING(nvmlDeviceGetAttributes_v2)
MISSING(nvmlDeviceGetComputeInstanceId)
MISSING(nvmlDeviceGetGpuInstanceId)
MISSING(nvmlDeviceGetMaxMigDeviceCount)
MISSING(nvmlDeviceGetMigDeviceHandleByIndex)
MISSING(nvmlDeviceGetMigMode)
MISSING(nvmlDeviceGetNvLinkRemotePciInfo_v2)
MISSING(nvmlDeviceGetNvLinkState)
MISSING(nvmlDeviceGetSupportedGraphicsClocks)
MISSING(nvmlDeviceGetSupportedMemoryClocks)
MISSING(nvmlDeviceResetApplicationsClocks)
MISSING(nvmlDeviceSetApplicationsClocks)
