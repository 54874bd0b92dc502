/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs keep: of each thread, its open scopes and the finished ones of its call tree; and the counters. */
#ifndef HOSTRANGE_THREAD_STATE_H
#define HOSTRANGE_THREAD_STATE_H

#define DEPTH_MASK (HOSTRANGE_MAX_DEPTH - 1)

/* Bits of open_scope.id. */
#define TAILED 0x80000000u /* the function has left by a tail jump; its callee will return for it */
#define ON_SIGNAL_STACK 0x40000000u /* opened by a signal handler that runs on the thread's alternate stack */
#define POINT 0x20000000u /* of a point-to-point range */
#define TAKEN_FOR_DEAD 0x10000000u /* not open any more; see DEAD_PLACES */
#define JUMPED_TO 0x20000000u /* of one that was taken for dead: the scope around it had left by a tail jump to it */
#define SCOPE_NUMBER 0x0fffffffu

/* Range and stack pointer at the function's entry in one word: what an exit is matched by. User addresses have 47 bits.
 */
#define STACK_POINTER_MASK 0xffffffffffffull
#define SCOPE_KEY(range, stack_pointer) ((__u64)(range) << 48 | ((stack_pointer)&STACK_POINTER_MASK))

/*
 * The key of a scope that a marker has opened: in place of the stack pointer, the address of its name and a bit that no
 * user address has. So to every stack pointer it looks like a frame further out, which is alive: a marker's scope ends
 * by its end marker alone, in whatever function that stands.
 */
#define OF_MARKER (1ull << 47)
#define MARKER_KEY(name) SCOPE_KEY(HOSTRANGE_MARKER_RANGE, OF_MARKER | (name))
#define NAME_OF_MARKER(key) ((key) & (OF_MARKER - 1))

/* Whether two stack pointers, or a key and one, are of the same frame; see HOSTRANGE_FRAME_LEVELS. */
#define SAME_FRAME(one, other) ((((one) ^ (other)) & STACK_POINTER_MASK & ~(__u64)HOSTRANGE_FRAME_LEVELS) == 0)

struct open_scope {
	__u64 key;
	__u64 start_ns;
	__u32 site;
	__u32 id; /* number in the tree, and bits */
};

/*
 * Kept below 8 KiB: an element of a task storage map is one allocation, and a small one does not fail. What a short
 * tree needs lies in the first page. `header` and `finished` must be neighbours: they are committed as one record.
 */
struct thread_state {
	__u32 depth;
	__u32 last_id; /* number given last in this tree */
	__u32 overflow_open; /* overflowed scopes whose exit is still to come */
	__u8 parts_lost;
	__u8 recorded; /* the current tree began while `recording` was set */
	__u8 has_signal_stack; /* when the current tree began */
	__u8 took_for_dead; /* there may be scopes that were taken for dead */
	__u8 forgotten; /* place of the one among them that was overwritten last */
	__u8 reserved[3];
	__u32 name_number; /* of the range name that was sent last, or asked for */
	__u64 name_address;
	/* The memory area of the stack that it was seen on last; 0 to 0: not known. */
	__u64 stack_begin, stack_end;
	__u64 program; /* unlike that of any other thread and of what ran in this one before exec */
	struct open_scope open[HOSTRANGE_MAX_DEPTH];
	struct hostrange_tree_header header;
	struct hostrange_scope finished[HOSTRANGE_TREE_SCOPES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} thread_states SEC(".maps");

/* Index cpu * max_sites + site. Atomic adds all the same: a task can be preempted inside a program. The loader sets
 * max_entries of this map and of `trees` before it loads them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hostrange_site_counters);
} site_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} trees SEC(".maps");

/* Drives loops: bpf_for_each_map_elem() is there from 5.13 on, bpf_loop() only from 5.17. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOSTRANGE_MAX_DEPTH);
	__type(key, __u32);
	__type(value, __u32);
} steps SEC(".maps");

const volatile struct hostrange_settings settings;

struct hostrange_session_counters session_counters;

/*
 * Set by the loader when all probes are in place. A tree that begins while it is not set is followed, so that the stack
 * of scopes is right, but neither counted nor committed: parts of it may have been missed.
 */
volatile __u32 recording;

/*
 * When probes of ranges were placed or taken away last; while that goes on, the end of time. Where an exit has its
 * probe but the entry before had none, the exit seems to be that of an earlier scope in the same place.
 */
volatile __u64 probes_changed_ns;

#define COUNT(counter) __sync_fetch_and_add(&(counter), 1)

static __always_inline struct hostrange_site_counters *counters_of(__u32 site)
{
	__u32 index = bpf_get_smp_processor_id() * settings.max_sites + site;

	return bpf_map_lookup_elem(&site_counters, &index);
}

static __always_inline struct thread_state *current_state(void)
{
	return bpf_task_storage_get(&thread_states, bpf_get_current_task_btf(), 0, 0);
}

#endif
