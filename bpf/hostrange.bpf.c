// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The programs. Some run at the sites of ranges (scope_entry, scope_exit, scope_steps), one where exceptions land, some
 * at markers (markers.h); the others watch processes come, load libraries, and go. A site's identity is its attach
 * cookie.
 *
 * The sections say uprobe, which is attached by perf events. Where the kernel has uprobe_multi links (6.6) the loader
 * sets that attach type before it loads the same programs.
 *
 * Functions that are not inlined are global: the kernel verifies those once. Static ones it verifies anew at every
 * call, and how soon it sees that it has been there differs from build to build: scope_steps exceeded the million steps
 * it allows on one build of 6.18 and not on another.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "bpf/kernel_types.h"
#include "bpf/hostrange.h"
#include "bpf/thread_state.h"
#include "bpf/stacks.h"
#include "bpf/scopes.h"
#include "bpf/late_ends.h"
#include "bpf/processes.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 last_program;

/* ---- the sites of ranges */

static __always_inline void introduce(struct thread_state *state)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	__u64 ids = bpf_get_current_pid_tgid();

	state->header.process_id = ids >> 32;
	state->header.process_start_ns = BPF_CORE_READ(leader, start_boottime);
	BPF_CORE_READ_STR_INTO(&state->header.comm, leader, comm);
	state->header.thread_id = ids;
	state->program = __sync_fetch_and_add(&last_program, 1) + 1;
	state->name_address = 0;
	state->stack_begin = state->stack_end = 0;
}

/* At a tree's first scope. */
static __always_inline void begin_tree(struct thread_state *state)
{
	state->has_signal_stack = bpf_get_current_task_btf()->sas_ss_size != 0;
	state->recorded = recording;
	if (!state->recorded)
		COUNT(session_counters.unrecorded);
}

/* Where scopes may be open whose frames are gone. */
__noinline int enter_slowly(__u64 stack_pointer)
{
	struct stack_walk walk = {.ending = HOSTRANGE_ENDED_ABANDONED};
	struct thread_state *state = current_state();
	__u32 depth;

	if (!state)
		return 0;
	walk.stack_pointer = stack_pointer;
	walk.now_ns = bpf_ktime_get_ns();
	depth = state->depth;
	bpf_for_each_map_elem(&steps, drop_if_dead, &walk, 0);
	if (state->depth != depth)
		end_tree_if_outermost(state);
	return 0;
}

/* Opens a scope; NULL if the thread's stack of scopes is full. The caller lets it begin. */
static __always_inline struct open_scope *push_scope(struct thread_state *state, __u64 cookie, __u64 stack_pointer,
                                                     __u32 bits)
{
	struct hostrange_site_counters *counters;
	__u32 depth = state->depth, site = HOSTRANGE_COOKIE_SITE(cookie);
	struct open_scope *scope;

	if (depth == 0)
		begin_tree(state);
	if (state->recorded) {
		counters = counters_of(site);
		if (counters && depth < HOSTRANGE_MAX_DEPTH)
			COUNT(counters->entries);
		else if (counters)
			COUNT(counters->overflow);
	}
	if (depth >= HOSTRANGE_MAX_DEPTH) {
		/* Ends that are quiet do not tell whether they belong to one of these. */
		if (!(HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_QUIET))
			state->overflow_open++;
		return 0;
	}
	state->depth = depth + 1;
	scope = &state->open[depth & DEPTH_MASK];
	if (depth >= HOSTRANGE_MAX_DEPTH - DEAD_PLACES && scope->id & TAKEN_FOR_DEAD)
		COUNT(session_counters.dead_forgotten);
	scope->key = SCOPE_KEY(HOSTRANGE_COOKIE_RANGE(cookie), stack_pointer);
	scope->site = site;
	state->last_id = (state->last_id + 1) & SCOPE_NUMBER;
	scope->id = state->last_id | bits;
	return scope;
}

SEC("uprobe")
int scope_entry(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), stack_pointer;
	struct thread_state *state;
	struct open_scope *scope;
	__u32 depth, bits = 0;

	if (HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_IGNORED)
		return 0;
	state = bpf_task_storage_get(&thread_states, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state) {
		COUNT(session_counters.no_state);
		return 0;
	}
	if (!state->header.thread_id)
		introduce(state);

	stack_pointer = PT_REGS_SP(ctx) + HOSTRANGE_COOKIE_STACK_ADJUST(cookie);
	if (HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_TAIL_JUMP)
		bits |= TAILED;
	if (state->has_signal_stack && on_signal_stack(bpf_get_current_task_btf(), stack_pointer))
		bits |= ON_SIGNAL_STACK;
	depth = state->depth;
	scope = &state->open[(depth - 1) & DEPTH_MASK];
	if (depth > 0 &&
	    ((scope->key & STACK_POINTER_MASK) <= stack_pointer || (scope->id & ~bits & ON_SIGNAL_STACK))) {
		enter_slowly(stack_pointer);
	}

	scope = push_scope(state, cookie, stack_pointer, bits);
	if (!scope)
		return 0;
	/* Last, so that as little as possible of this program lies inside the scope. */
	scope->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* An exit without a scope: the function was entered before its probes were there, or its scope was taken for dead. */
static __always_inline void count_orphan(__u32 site_id)
{
	struct hostrange_site_counters *counters = counters_of(site_id);

	if (counters && recording)
		COUNT(counters->orphans);
}

/* Ends scope `walk->found - 1`, which need not be the innermost. */
static __always_inline void end_found(struct thread_state *state, struct stack_walk *walk, __u32 ending)
{
	__u32 depth = state->depth, index = walk->found - 1;

	finish_scope(state, index, walk->now_ns, ending);
	if (index + 1 < depth) {
		COUNT(session_counters.out_of_order);
		bpf_for_each_map_elem(&steps, close_gap, walk, 0);
	}
	state->depth = depth - 1;
}

/* Where the innermost scope is not the one that ends. */
__noinline int exit_slowly(__u64 cookie, __u64 stack_pointer, __u64 now_ns)
{
	struct stack_walk walk = {.ending = HOSTRANGE_ENDED_ABANDONED, .keep_equal = 1};
	__u8 flags = HOSTRANGE_COOKIE_FLAGS(cookie);
	struct thread_state *state = current_state();
	struct open_scope *top;
	__u32 depth, index;

	if (!state)
		return 0;
	walk.stack_pointer = stack_pointer;
	walk.key = SCOPE_KEY(HOSTRANGE_COOKIE_RANGE(cookie), stack_pointer);
	walk.now_ns = now_ns;
	/* Frames deeper than the one that returns are gone. Its own stands at this very stack pointer: keep it. */
	bpf_for_each_map_elem(&steps, drop_if_dead, &walk, 0);

	bpf_for_each_map_elem(&steps, find_scope, &walk, 0);
	depth = state->depth;
	top = &state->open[(depth - 1) & DEPTH_MASK];
	if (walk.found) {
		index = walk.found - 1;
		if (flags & HOSTRANGE_SITE_TAIL_JUMP) {
			state->open[index & DEPTH_MASK].id |= TAILED;
			return 0;
		}
		if (flags & HOSTRANGE_SITE_ONLY_TAILED && !(state->open[index & DEPTH_MASK].id & TAILED))
			return 0;
		end_found(state, &walk,
		          flags & HOSTRANGE_SITE_BY_EXCEPTION ? HOSTRANGE_ENDED_BY_EXCEPTION : HOSTRANGE_ENDED_BY_EXIT);
		walk.found = index;
	} else if (flags & HOSTRANGE_SITE_QUIET) {
		/* There need not have been an entry: so not even a scope that was taken for dead must be ended. */
		walk.only_look = 1;
		if (state->took_for_dead && recording)
			bpf_for_each_map_elem(&steps, end_if_taken_for_dead, &walk, 0);
		if (walk.found) {
			COUNT(session_counters.dead_forgotten);
			count_orphan(HOSTRANGE_COOKIE_SITE(cookie));
		}
		if (walk.dropped)
			end_tree_if_outermost(state);
		return 0;
	} else if (depth > 0 && !(flags & HOSTRANGE_SITE_TAIL_JUMP) && has_jumped(state, depth) &&
	           SAME_FRAME(top->key, stack_pointer)) {
		/* A function that was jumped to returns for the one that jumped. */
		walk.found = depth;
	} else if (state->overflow_open > 0) {
		if (!(flags & HOSTRANGE_SITE_TAIL_JUMP))
			state->overflow_open--;
		return 0;
	} else {
		/* One that leaves by a tail jump ends here, too: its callee may have no site. */
		if (state->took_for_dead)
			bpf_for_each_map_elem(&steps, end_if_taken_for_dead, &walk, 0);
		if (walk.jumped_to)
			bpf_for_each_map_elem(&steps, end_if_taken_for_dead, &walk, 0);
		if (!walk.found)
			count_orphan(HOSTRANGE_COOKIE_SITE(cookie));
		if (walk.dropped)
			end_tree_if_outermost(state);
		return 0;
	}
	bpf_for_each_map_elem(&steps, end_if_tailed, &walk, 0);
	end_tree_if_outermost(state);
	return 0;
}

/* A scope has ended whose stack pointer is also that of functions that jumped here. */
__noinline int end_tailed(__u64 stack_pointer, __u64 now_ns)
{
	struct stack_walk walk = {};
	struct thread_state *state = current_state();

	if (!state)
		return 0;
	walk.stack_pointer = stack_pointer;
	walk.now_ns = now_ns;
	walk.found = state->depth;
	bpf_for_each_map_elem(&steps, end_if_tailed, &walk, 0);
	end_tree_if_outermost(state);
	return 0;
}

SEC("uprobe")
int scope_exit(struct pt_regs *ctx)
{
	/* First, so that as little as possible of this program lies inside the scope. */
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 cookie = bpf_get_attach_cookie(ctx), stack_pointer;
	struct thread_state *state;
	struct open_scope *scope;
	__u32 depth;

	if (HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_IGNORED)
		return 0;
	state = current_state();
	if (!state) {
		count_orphan(HOSTRANGE_COOKIE_SITE(cookie));
		return 0;
	}
	stack_pointer = PT_REGS_SP(ctx) + HOSTRANGE_COOKIE_STACK_ADJUST(cookie);
	depth = state->depth;
	scope = &state->open[(depth - 1) & DEPTH_MASK];
	if (depth == 0 || scope->key != SCOPE_KEY(HOSTRANGE_COOKIE_RANGE(cookie), stack_pointer)) {
		exit_slowly(cookie, stack_pointer, now_ns);
		return 0;
	}

	if (HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_TAIL_JUMP) {
		scope->id |= TAILED;
		return 0;
	}
	finish_scope(state, depth - 1, now_ns, HOSTRANGE_ENDED_BY_EXIT);
	depth--;
	state->depth = depth;
	if (depth == 0) {
		end_tree_if_outermost(state);
		return 0;
	}
	scope = &state->open[(depth - 1) & DEPTH_MASK];
	if (scope->id & (TAILED | POINT) && SAME_FRAME(scope->key, stack_pointer))
		end_tailed(stack_pointer, now_ns);
	return 0;
}

#include "bpf/steps.h"
#include "bpf/markers.h"

/* At the entry of __cxa_begin_catch: an exception has landed in the function that calls it, so every frame below that
 * function's is gone. */
SEC("uprobe")
int exception_landing(struct pt_regs *ctx)
{
	struct thread_state *state = current_state();
	struct stack_walk walk = {.ending = HOSTRANGE_ENDED_BY_EXCEPTION};

	if (!state || state->depth == 0)
		return 0;
	walk.now_ns = bpf_ktime_get_ns();
	walk.stack_pointer = PT_REGS_SP(ctx) + HOSTRANGE_COOKIE_STACK_ADJUST(bpf_get_attach_cookie(ctx));
	bpf_for_each_map_elem(&steps, drop_if_dead, &walk, 0);
	end_tree_if_outermost(state);
	return 0;
}

/* ---- the end of threads and programs */

static __always_inline void abandon_everything(struct thread_state *state)
{
	struct stack_walk walk = {};

	if (state->depth > 0 || state->header.scope_count > 0) {
		walk.now_ns = bpf_ktime_get_ns();
		bpf_for_each_map_elem(&steps, abandon_innermost, &walk, 0);
		state->overflow_open = 0;
		if (state->recorded)
			commit(state, HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_UNFINISHED);
	}
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_exit, struct task_struct *task)
{
	struct thread_state *state = current_state();

	if (state)
		abandon_everything(state);
	return 0;
}

/*
 * Writes, for every thread that has scopes open: its ids, then its open scopes; and commits the finished scopes of its
 * unfinished tree. The loader runs this when all probes are gone. If the ring has no room it says so and is run again.
 */
struct open_thread {
	__u32 process_id;
	__u32 thread_id;
	__u32 depth;
	__u32 retry;
};

SEC("iter/task")
int unfinished_trees(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct open_thread thread = {};
	struct thread_state *state;
	__u32 depth;

	if (!task)
		return 0;
	state = bpf_task_storage_get(&thread_states, task, 0, 0);
	if (!state)
		return 0;
	depth = state->depth;
	if (depth > HOSTRANGE_MAX_DEPTH || !state->recorded)
		return 0;
	if (state->header.scope_count > 0) {
		if (send_record(state, HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_UNFINISHED))
			state->header.scope_count = 0;
		else
			thread.retry = 1;
	}
	if (depth == 0 && !thread.retry)
		return 0;
	thread.process_id = state->header.process_id;
	thread.thread_id = state->header.thread_id;
	thread.depth = depth;
	bpf_seq_write(ctx->meta->seq, &thread, sizeof(thread));
	if (depth > 0)
		bpf_seq_write(ctx->meta->seq, state->open, depth * sizeof(struct open_scope));
	return 0;
}

/* ---- processes */

/*
 * At the entry of the dynamic linker's _dl_debug_state(), its hook for debuggers. It is called before objects are
 * mapped and again when they are, not yet relocated: then none of their code has run. The cookie is the distance from
 * the probed address to the field _r_debug.r_state, which tells the two calls apart; 0 if unknown.
 */
SEC("uprobe")
int libraries_mapped(struct pt_regs *ctx)
{
	__u64 distance = bpf_get_attach_cookie(ctx);
	__u32 linker_state = 0; /* RT_CONSISTENT */

	if (distance)
		bpf_probe_read_user(&linker_state, sizeof(linker_state), (void *)(PT_REGS_IP(ctx) + distance));
	if (linker_state == 0)
		tell_of_current(HOSTRANGE_EVENT_LIBRARY, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_start, struct task_struct *task, int old_pid)
{
	struct thread_state *state = current_state();

	if (state) {
		abandon_everything(state);
		forget_those_taken_for_dead(state);
		introduce(state);
	}
	tell_of_current(HOSTRANGE_EVENT_EXEC, old_pid);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_id = parent->tgid, child_id = child->tgid;
	__u32 *watch, value, place = 0;

	if ((__u32)child->pid != child_id)
		return 0; /* a thread */
	watch = bpf_map_lookup_elem(&watched, &parent_id);
	if (!watch)
		return 0;
	value = *watch;
	if (value & HOSTRANGE_WATCH_STOP) {
		bpf_map_update_elem(&watched, &child_id, &value, BPF_ANY);
		/* The child has the parent's breakpoints, but no program runs at them until the loader has attached for
		 * it. A vfork child borrows the parent's memory and waits for exec: leave it alone. */
		if (child->mm != parent->mm && bpf_ksym_exists(bpf_send_signal_task)) {
			place = list_stopped(child_id);
			if (bpf_send_signal_task(child, SIGSTOP, PIDTYPE_TGID, 0))
				place = 0;
		}
	}
	tell(HOSTRANGE_EVENT_FORK, child_id, parent_id, place);
	return 0;
}
