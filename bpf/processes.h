/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes are watched, how the loader hears of them, and how they are stopped until it has attached. */
#ifndef HOSTRANGE_PROCESSES_H
#define HOSTRANGE_PROCESSES_H

#define SIGSTOP 19

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* process id */
	__type(value, __u32); /* HOSTRANGE_WATCH_* */
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* Process ids that were sent SIGSTOP and not yet SIGCONT; 0 in a free place. The guardian process maps it, so that it
 * can let them run should the loader die. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HOSTRANGE_MAX_STOPPED);
	__type(key, __u32);
	__type(value, __u64);
} stopped SEC(".maps");

__u32 next_stopped;

extern int bpf_send_signal_task(struct task_struct *task, int signal, enum pid_type type, __u64 value) __ksym __weak;

/* Gives the place in the list, from 1. It is for this stop alone: a process that is let run may be stopped again before
 * the loader has struck out the earlier entry. */
static __always_inline __u32 list_stopped(__u32 process_id)
{
	__u32 place = __sync_fetch_and_add(&next_stopped, 1) & (HOSTRANGE_MAX_STOPPED - 1);
	__u64 *entry = bpf_map_lookup_elem(&stopped, &place);

	if (entry)
		*entry = process_id;
	return place + 1;
}

static __always_inline void tell(__u32 kind, __u32 process_id, __u32 origin_id, __u32 place)
{
	struct hostrange_event event = {
	        .kind = kind, .process_id = process_id, .origin_id = origin_id, .stopped = place};

	if (bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_FORCE_WAKEUP))
		COUNT(session_counters.lost_events);
}

/* Stops the current process if it is watched that way, and tells the loader. The stop takes effect before the process
 * runs on in user mode. */
static __always_inline void tell_of_current(__u32 kind, __u32 origin_id)
{
	__u32 process_id = bpf_get_current_pid_tgid() >> 32;
	__u32 *watch = bpf_map_lookup_elem(&watched, &process_id);
	__u32 place = 0;

	if (!watch && !settings.watch_all)
		return;
	if (watch && *watch & HOSTRANGE_WATCH_STOP) {
		place = list_stopped(process_id);
		if (bpf_send_signal(SIGSTOP))
			place = 0;
	}
	tell(kind, process_id, origin_id, place);
}

#endif
