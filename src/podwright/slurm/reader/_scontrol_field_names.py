"""The names of the fields that scontrol prints in its records, in releases 22.05 to 26.05.

They come from the strings in scontrol and libslurm 22.05.8, 24.11.5 and 26.05.5. To add a release,
add its new names, put what its `scontrol show` prints of the lab's cluster into
tests/slurm/reader/recorded, and name it in RELEASES of texts.py there.
"""

from __future__ import annotations

from typing import Final

_FIELD_NAMES_TEXT: Final = """
AbstractCores Account AccountingStorageType AccountingStoreFlags Accounts AccrueTime Action
ActiveFeatures AdminComment AdminLevel AllocMem AllocNode:Sid AllocNodes AllocTRES AllowAccounts
AllowGroups AllowQos AllowUsers AllowedPartitions Alternate Arch ArrayJobId ArrayTaskId
ArrayTaskThrottle AuthInfo AutoDetect Autodetect AvailableFeatures AveWatts BatchFeatures
BatchFlag BatchHost BcastAddr Boards BootTime BurstBuffer BurstBufferState CPUAlloc CPUEfctv
CPUFreqReq CPULoad CPUSpecList CPUTot CPU_IDs CPU_max_freq CPU_min_freq CPUs CPUs/Task CapWatts
CfgTRES CgroupPlugin Channel ClusterFeatures ClusterName Command Comment CommunicationParameters
CompletingTime ConsolidateSegments Container ContainerID ContainerPath ContainerType Contiguous
CoreCnt CoreIDs CoreSpec CoreSpecCount Cores CoresPerSocket Count CpuBind CpuFreqDef CpuFreqReq
CpuSpecList CpusPerTres CreateBuffer CreateEnvFile CreateTime CronJob CrontabSpec CurrentWatts
Deadline DebugFlags DefAccount DefAssoc DefMemPerCPU DefMemPerNode DefWckey Default DefaultPool
DefaultTime DelayBoot DenyAccounts DenyGroups DenyQos DenyUsers Dependency DerivedExitCode
DestroyBuffer DisablePersistenautobind DisableRootJobs Dist Duration EligibleTime EndTime
ExcNodeList Exclusive ExclusiveTopo ExclusiveUser ExitCode ExpeditedRequeue ExtSensorsJoules
ExtSensorsTemp ExtSensorsWatts Extra FailedNode FastSchedule Feature Features FedActiveSiblings
FedOrigin FedViableSiblings File Flags Free FreeMem FreeSpace FrontendName GRES GetSysState
GetSysStatus Governor GraceTime Granularity Gres GresAllowTaskSharing GresDrain GresEnforceBind
GresOneTaskPerSharing GresUsed GroupId Groups GrpJobs GrpJobsAccrue GrpSubmitJobs GrpWall
HealthCheckNodeState HetJobId HetJobIdSet HetJobOffset Hidden IgnoreFileConfigJson Index
InstanceId InstanceType JOB_GRES Job JobDefaults JobID JobId JobName JobState
KillOInInvalidDependent KillOnInvalidDependent LLN LastBusyTime LastConsumed LastDeficit
LastSchedEval LastUpdate LaunchParameters Level LicenseName Licenses LicensesAlloc Lineage
LinkSpeed Links Location MCSParameters MCSPlugin MCS_label MailType MailUser MaxCPUsPerNode
MaxCPUsPerSocket MaxJobCount MaxJobs MaxJobsAccrue MaxJobsAccruePA MaxJobsAccruePU MaxJobsPA
MaxJobsPU MaxMemPerCPU MaxMemPerNode MaxNodes MaxStartDelay MaxStepCount MaxSubmitJobs
MaxSubmitJobsPA MaxSubmitJobsPU MaxTime MaxWallPJ Mem MemPerTres MemSpecLimit MemUpdate Memory
MessageTimeout MinCPUsNode MinMemoryCPU MinMemoryNode MinNodes MinPrioThresh MinTmpDiskNode Mode
MsgType Name Network New NextState Nice Node NodeAddr NodeCnt NodeHostName NodeList NodeName
NodeNames NodeSets Nodes NtasksPerN:B:S:C NtasksPerTRES NumCPUs NumNodes NumTasks OOMKillStep OS
OtherTimeout Ours OverSubscribe OverTimeLimit Owner Parameters ParentAccount Partition
PartitionName Partitions PollInterval Pool Port Power PowerDownOnIdle PreemptEligibleTime
PreemptExemptTime PreemptMode PreemptTime Prefer Prior Priority PriorityJobFactor PriorityTier
Proctracktype Program PrologFlags QOS QoS RealMemory Reason Reboot Remote ReqB:S:C:T ReqNodeList
ReqResv ReqTRES Requeue Reservation ReservationName Reserved ResizeTime Restarts
RestrictedCoresPerGPU ResumeAfterTime ResumeTimeout ResvComment ResvPorts RootOnly RunTime
SELinuxContext SLUID Scheduler SecsPreSuspend SegmentSize SelectTypeParameters Size Slurmctld
SlurmctldHost SlurmctldPort SlurmdParameters SlurmdStartTime Sockets SocketsPerBoard
SocketsPerBoards Socks/Node SpreadJob SpreadSegments SrunHost:Pid StageInTimeout StageOutTimeout
StartStageIn StartTime State StdErr StdIn StdOut StepId StepMgrEnabled StopStageIn SubmitLine
SubmitTime SuspendTime SuspendTimeout SwitchName Switches SystemComment TLSCertLastRenewal
TLSCertTokenSet TRES TRESBillingWeights TaskPlugin TaskPluginParam Tasks ThreadSpec ThreadsPerCore
TimeLimit TimeMin TmpDisk Topology Total TotalCPUs TotalNodes TotalSpace TreeWidth TresBind
TresFreq TresPerJob TresPerNode TresPerSocket TresPerStep TresPerTask Type UnkillableStepTimeout
UsageRaw Used UsedSpace UserID UserId UserName Users ValidateTimeout Version WCKey Watts Weight
WorkDir
"""
FIELD_NAMES: Final = frozenset(_FIELD_NAMES_TEXT.split())
