/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The few kernel types that the programs read, with the few fields they read; CO-RE finds the real offsets. */
#ifndef HOSTRANGE_KERNEL_TYPES_H
#define HOSTRANGE_KERNEL_TYPES_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct;

struct task_struct {
	int pid;
	int tgid;
	__u64 start_boottime;
	char comm[16];
	unsigned long sas_ss_sp; /* alternate signal stack */
	unsigned long sas_ss_size;
	struct task_struct *group_leader;
	struct mm_struct *mm;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
};

struct bpf_iter_meta {
	void *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

enum pid_type {
	PIDTYPE_PID = 0,
	PIDTYPE_TGID = 1,
};

#endif
